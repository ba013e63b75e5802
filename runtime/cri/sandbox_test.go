package cri_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// runningIn brings a pod up in a runtime of that name and forgets the calls.
func runningIn(t *testing.T, name string, pod *v1.Pod) (*service, *syncer) {
	t.Helper()
	svc := newService(t)
	svc.Runtime = fake.New(fake.Options{
		Name: name, Images: []string{"app:1"}, Without: fake.ListStreams(),
		PodIPs: func(runtime.PodRef) []string { return svc.ips },
	})
	s := newSyncer(t, svc.client(cri.Options{}), pod)
	s.mustSync()
	svc.calls()
	svc.start = time.Now()
	return svc, s
}

// TestSandboxOfARemovedPodIsStoppedByItsRemoval: containerd takes the network of a sandbox
// down with each stop and with the removal, which costs as much each time.
func TestSandboxOfARemovedPodIsStoppedByItsRemoval(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	hostPort := podOf("a")
	hostPort.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	tests := []struct {
		name, runtime string
		pod           *v1.Pod
		kill          runtime.PodKill
		want          []string // without the stop of the container
	}{
		{"removed", "containerd", podOf("a"), runtime.PodKill{Removed: true, Awaited: make(chan struct{})}, []string{"RemovePodSandbox s1"}},
		{"not removed", "containerd", podOf("a"), runtime.PodKill{}, []string{"StopPodSandbox s1", "RemovePodSandbox s1"}},
		{"host ports", "containerd", hostPort, runtime.PodKill{Removed: true}, []string{"StopPodSandbox s1", "RemovePodSandbox s1"}},
		{"awaited", "containerd", podOf("a"), runtime.PodKill{Removed: true, Awaited: closed}, []string{"StopPodSandbox s1", "RemovePodSandbox s1"}},
		{"another runtime", "cri-o", podOf("a"), runtime.PodKill{Removed: true}, []string{"StopPodSandbox s1", "RemovePodSandbox s1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc, s := runningIn(t, tt.runtime, tt.pod)
			tt.kill.Pod, tt.kill.Status = tt.pod, s.status()
			require.NoError(t, s.rt.KillPod(t.Context(), tt.kill))
			after := s.status()
			assert.False(t, after.Running(), "the sandbox is not ready from now on")
			assert.Equal(t, runtime.SandboxNotReady, after.Sandboxes[0].State)
			pods, err := s.rt.ListPods(t.Context())
			require.NoError(t, err)
			assert.False(t, pods[0].Running())
			require.NoError(t, s.rt.RemoveSandbox(t.Context(), after.Sandboxes[0].ID))
			assert.Equal(t, append([]string{"StopContainer a 30"}, tt.want...), svc.calls())
			assert.Empty(t, s.status().Sandboxes)
		})
	}
}

func TestSandboxThatIsLeftAndNotRemoved(t *testing.T) {
	left := func(t *testing.T) (*service, *syncer) {
		svc, s := runningIn(t, "containerd", podOf("a"))
		require.NoError(t, s.rt.KillPod(t.Context(), runtime.PodKill{Pod: s.pod, Status: s.status(), Removed: true}))
		assert.Equal(t, []string{"StopContainer a 30"}, svc.calls())
		return svc, s
	}
	t.Run("the pod comes back", func(t *testing.T) {
		svc, s := left(t)
		s.mustSync()
		assert.Equal(t, []string{"StopPodSandbox s1", "RunPodSandbox web/1", "CreateContainer a/1", "StartContainer a"}, svc.calls()[:4])
	})
	t.Run("its removal fails", func(t *testing.T) {
		svc, s := left(t)
		yield := svc.Inject(fake.Fault{Call: "RemovePodSandbox", Err: status.Error(codes.Internal, "network")})
		require.Error(t, s.rt.RemoveSandbox(t.Context(), s.status().Sandboxes[0].ID))
		yield()
		svc.calls()
		require.True(t, s.status().Running(), "so that it is stopped as an orphan")
		require.NoError(t, s.rt.KillPod(t.Context(), runtime.PodKill{Status: s.status()}))
		require.NoError(t, s.rt.RemoveSandbox(t.Context(), s.status().Sandboxes[0].ID))
		assert.Equal(t, []string{"StopPodSandbox s1", "RemovePodSandbox s1"}, svc.calls())
	})
	t.Run("nobody removes it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, s := left(t)
			time.Sleep(4 * time.Minute)
			assert.False(t, s.status().Running())
			time.Sleep(time.Minute)
			assert.True(t, s.status().Running(), "so that it is stopped as an orphan")
			pods, err := s.rt.ListPods(t.Context())
			require.NoError(t, err)
			assert.True(t, pods[0].Running())
		})
	})
}
