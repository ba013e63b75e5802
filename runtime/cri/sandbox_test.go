package cri_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// watched returns a runtime whose events are received, and a function that brings up pods in it
// and forgets the calls. If deaf, the events do not show that a sandbox has stopped.
func watched(t *testing.T, deaf bool) (*service, func(name string) *syncer) {
	t.Helper()
	svc := newService(t, "app:1")
	client := svc.client(cri.Options{})
	if deaf {
		svc.InjectEvents(fake.EventFault{Kind: criv1.ContainerEventType_CONTAINER_STOPPED_EVENT.Enum(), Lose: true})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { _ = client.WatchEvents(ctx, func() {}, func(runtime.Hint) {}) })
	t.Cleanup(func() { cancel(); watch.Wait() })
	synctest.Wait()
	return svc, func(name string) *syncer {
		pod := podOf("a")
		pod.Name, pod.UID = name, types.UID(name)
		s := newSyncer(t, client, pod)
		s.mustSync()
		svc.calls()
		svc.start = time.Now()
		return s
	}
}

// methods returns the methods of the calls since the last look.
func methods(svc *service) (methods []string) {
	for _, call := range svc.calls() {
		method, _, _ := strings.Cut(call, " ")
		methods = append(methods, method)
	}
	return methods
}

// end kills a pod that was removed from its source, and removes its sandbox.
func (s *syncer) end() {
	s.t.Helper()
	status := s.status()
	require.NoError(s.t, s.rt.KillPod(s.t.Context(), runtime.PodKill{Pod: s.pod, Status: status, Removed: true}))
	require.NoError(s.t, s.rt.RemoveSandbox(s.t.Context(), status.Sandboxes[0].ID))
	synctest.Wait()
}

// A runtime such as containerd takes the network of a sandbox down with each stop and with the
// removal, which costs as much each time. The first removal shows whether it does.
func TestSandboxOfARemovedPodIsStoppedByItsRemoval(t *testing.T) {
	stop, remove := "StopPodSandbox", "RemovePodSandbox"
	tests := []struct {
		name string
		deaf bool
		// first are the calls for the first pod that is removed, second those for the second one.
		first, second []string
	}{
		{"it does", false, []string{remove}, []string{remove}},
		{"it is not seen to", true, []string{remove}, []string{stop, remove}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				svc, start := watched(t, tt.deaf)
				a, b := start("a"), start("b")
				a.end()
				assert.Equal(t, append([]string{"StopContainer"}, tt.first...), methods(svc))
				b.end()
				assert.Equal(t, append([]string{"StopContainer"}, tt.second...), methods(svc))
			})
		})
	}
	t.Run("without events", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			svc := newService(t, "app:1")
			for range 2 {
				s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
				s.mustSync()
				svc.calls()
				s.end()
				assert.Contains(t, methods(svc), "StopPodSandbox")
			}
		})
	})
	t.Run("it has stopped before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			svc, start := watched(t, false)
			a, b := start("a"), start("b")
			status := a.status()
			require.NoError(t, a.rt.KillPod(t.Context(), runtime.PodKill{Pod: a.pod, Status: status, Removed: true}))
			svc.KillSandbox(fake.Target{Pod: "a"}) // its event comes before the removal
			synctest.Wait()
			require.NoError(t, a.rt.RemoveSandbox(t.Context(), status.Sandboxes[0].ID))
			synctest.Wait()
			svc.calls()
			b.end()
			assert.Contains(t, methods(svc), "StopPodSandbox")
		})
	})
}

func TestSandboxesThatAreStoppedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc, start := watched(t, false)
		start("first").end()
		svc.calls()
		kill := func(name string, change func(*v1.Pod), kill runtime.PodKill) []string {
			s := start(name)
			change(s.pod)
			kill.Pod, kill.Status = s.pod, s.status()
			require.NoError(t, s.rt.KillPod(t.Context(), kill))
			after := s.status()
			assert.False(t, after.Running(), "the sandbox is not ready from now on")
			assert.Equal(t, runtime.SandboxNotReady, after.Sandboxes[0].State)
			pods, err := s.rt.ListPods(t.Context())
			require.NoError(t, err)
			assert.False(t, pods[0].Running())
			require.NoError(t, s.rt.RemoveSandbox(t.Context(), after.Sandboxes[0].ID))
			assert.Empty(t, s.status().Sandboxes)
			return methods(svc)[1:]
		}
		same := func(*v1.Pod) {}
		assert.Equal(t, []string{"RemovePodSandbox"}, kill("removed", same, runtime.PodKill{Removed: true}))
		assert.Equal(t, []string{"StopPodSandbox", "RemovePodSandbox"}, kill("not removed", same, runtime.PodKill{}))
		assert.Equal(t, []string{"StopPodSandbox", "RemovePodSandbox"}, kill("host ports", func(pod *v1.Pod) {
			pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}, runtime.PodKill{Removed: true}))
	})
}

func TestSandboxThatIsLeftAndNotRemoved(t *testing.T) {
	left := func(t *testing.T) (*service, *syncer) {
		svc, start := watched(t, false)
		s := start("web")
		require.NoError(t, s.rt.KillPod(t.Context(), runtime.PodKill{Pod: s.pod, Status: s.status(), Removed: true}))
		assert.Equal(t, []string{"StopContainer a 30"}, svc.calls())
		return svc, s
	}
	t.Run("the pod comes back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			svc, s := left(t)
			s.mustSync()
			assert.Equal(t, []string{"StopPodSandbox s1", "RunPodSandbox web/1", "CreateContainer a/1",
				"StartContainer a"}, svc.calls()[:4])
		})
	})
	t.Run("its removal fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			svc, s := left(t)
			yield := svc.Inject(fake.Fault{Call: "RemovePodSandbox", Err: status.Error(codes.Internal, "network")})
			require.Error(t, s.rt.RemoveSandbox(t.Context(), s.status().Sandboxes[0].ID))
			yield()
			svc.calls()
			_, err := s.rt.ListPods(t.Context())
			require.NoError(t, err)
			require.True(t, s.status().Running(), "so that it is stopped as an orphan")
			require.NoError(t, s.rt.KillPod(t.Context(), runtime.PodKill{Status: s.status()}))
			require.NoError(t, s.rt.RemoveSandbox(t.Context(), s.status().Sandboxes[0].ID))
			assert.Equal(t, []string{"StopPodSandbox s1", "RemovePodSandbox s1"}, svc.calls())
		})
	})
	t.Run("nobody removes it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, s := left(t)
			time.Sleep(4 * time.Minute)
			assert.False(t, s.status().Running())
			time.Sleep(time.Minute)
			pods, err := s.rt.ListPods(t.Context())
			require.NoError(t, err)
			assert.True(t, pods[0].Running(), "so that it is stopped as an orphan")
			assert.True(t, s.status().Running())
		})
	})
}
