package cri_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestInspectPod(t *testing.T) {
	svc := newService(t, "app:1")
	pod := podOf("a")
	pod.Spec.Containers[0].Lifecycle = preStopExec("bye")
	pod.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: "web", ContainerPort: 80}}
	s := running(t, svc, pod)
	mounts := svc.status("a").Mounts
	require.Len(t, mounts, 2, "hosts and termination log")
	require.NoError(t, os.WriteFile(mounts[1].HostPath, []byte("last words"), 0o600))
	svc.exit("a", 3)
	c := svc.status("a")

	st := s.status()
	assert.Equal(t, runtime.RefOf(pod), st.PodRef)
	assert.Zero(t, st.Mark)
	require.Len(t, st.Containers, 1)
	got := st.Containers[0]
	assert.Equal(t, runtime.Container{
		ID: runtime.ContainerID{Type: "fake", ID: c.Id}, Name: "a", SandboxID: "s1", State: runtime.ContainerExited,
		CreatedAt: time.Unix(0, c.CreatedAt), Hash: podspec.ContainerHash(&pod.Spec.Containers[0]),
	}, got.Container)
	assert.Equal(t, int32(3), got.ExitCode)
	assert.Equal(t, "Error", got.Reason)
	assert.Equal(t, "last words", got.Message)
	assert.Equal(t, time.Unix(0, c.FinishedAt), got.FinishedAt)
	assert.Equal(t, int64(30), *got.GracePeriod)
	assert.Equal(t, pod.Spec.Containers[0].Lifecycle.PreStop, got.PreStop)
	assert.Equal(t, pod.Spec.Containers[0].Ports, got.Ports)
	assert.Equal(t, "app@"+c.ImageId, got.ImageRef)
	assert.Equal(t, c.ImageId, got.ImageID)
	assert.Equal(t, c.LogPath, got.LogPath)
	assert.Len(t, got.Mounts, 2)

	sandbox := st.ReadySandbox()
	require.NotNil(t, sandbox)
	assert.Equal(t, []string{"10.0.0.7", "fd00::7"}, sandbox.IPs)
	assert.False(t, sandbox.HostNetwork)
	assert.Equal(t, "web", sandbox.Labels["io.kubernetes.pod.name"])
}

func TestInspectUnknownPod(t *testing.T) {
	svc := newService(t)
	st, err := svc.client(cri.Options{}).InspectPod(t.Context(), runtime.PodRef{UID: "u", Namespace: "n", Name: "p"})
	require.NoError(t, err)
	assert.Empty(t, st.Sandboxes)
	assert.Empty(t, st.Containers)
	_, err = svc.client(cri.Options{}).InspectPod(t.Context(), runtime.PodRef{Namespace: "n", Name: "p"})
	assert.Error(t, err, "an empty UID selects nothing, not everything")
}

func TestInspectLeavesOutWhatIsRemovedMeanwhile(t *testing.T) {
	svc := newService(t, "app:1")
	s := running(t, svc, podOf("a", "b"))
	svc.Inject(fake.Fault{Call: "ContainerStatus", Target: fake.Target{Container: "a"}, Err: runtime.ErrNotFound})
	svc.Inject(fake.Fault{Call: "PodSandboxStatus", Err: runtime.ErrNotFound})
	s.rt = svc.client(cri.Options{}) // one that has not asked about the sandbox yet
	st := s.status()
	require.Len(t, st.Containers, 1)
	assert.Equal(t, "b", st.Containers[0].Name)
	assert.Empty(t, st.Sandboxes)
	assert.Empty(t, st.IPs)
}

// Of a ready sandbox nothing changes but its state, which the list tells.
func TestInspectAsksOnceAboutAReadySandbox(t *testing.T) {
	svc := newService(t, "app:1")
	s := running(t, svc, podOf("a"))
	asked := func(s *syncer) (*runtime.PodStatus, int) {
		svc.calls(true)
		st := s.status()
		n := 0
		for _, c := range svc.calls(true) {
			if c == "PodSandboxStatus s1" {
				n++
			}
		}
		return st, n
	}
	fresh := &syncer{t: t, rt: svc.client(cri.Options{}), pod: s.pod, dir: s.dir}
	first, n := asked(fresh)
	assert.Equal(t, 1, n)
	for _, again := range []*syncer{fresh, s} {
		st, n := asked(again)
		assert.Equal(t, 0, n)
		assert.Equal(t, first, st)
	}
	svc.KillSandbox(fake.Target{})
	st, _ := asked(fresh)
	assert.Equal(t, runtime.SandboxNotReady, st.Sandboxes[0].State)
	assert.Empty(t, st.IPs)

	// One without an address is asked about until it has one.
	svc = newService(t, "app:1")
	svc.ips = []string{"not yet"}
	s = running(t, svc, podOf("a"))
	for range 2 {
		_, n := asked(s)
		assert.Equal(t, 1, n)
	}
}

func TestInspectFails(t *testing.T) {
	svc := newService(t, "app:1")
	s := running(t, svc, podOf("a"))
	svc.Inject(fake.Fault{Call: "ContainerStatus", Err: status.Error(codes.Unavailable, "connection refused")})
	_, err := s.rt.InspectPod(t.Context(), runtime.RefOf(s.pod))
	assert.ErrorIs(t, err, runtime.ErrUnavailable)
	assert.EqualError(t, err, "pod default/web(uid-1), container a: ContainerStatus: connection refused: container "+
		"runtime unavailable")
}

func TestListPods(t *testing.T) {
	svc := newService(t, "app:1")
	s := running(t, svc, podOf("a"))
	svc.exit("a", 1)
	s.mustSync()
	rs, _ := svc.Clients()
	_, err := rs.RunPodSandbox(t.Context(), &criv1.RunPodSandboxRequest{Config: &criv1.PodSandboxConfig{
		Metadata: &criv1.PodSandboxMetadata{Name: "crictl", Uid: "x"},
	}})
	require.NoError(t, err)
	svc.calls(true)

	pods, err := s.rt.ListPods(t.Context())
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"ListPodSandbox", "ListContainers"}, svc.calls(true))
	require.Len(t, pods, 1, "what has not kubelet's labels is nobody's pod")
	assert.Equal(t, runtime.RefOf(s.pod), pods[0].PodRef)
	require.Len(t, pods[0].Containers, 2)
	assert.Equal(t, runtime.ContainerRunning, pods[0].Containers[0].State, "the newest first")
	assert.Equal(t, podspec.ContainerHash(&s.pod.Spec.Containers[0]), pods[0].Containers[0].Hash)

	assert.Equal(t, runtime.ContainerExited, pods[0].Containers[1].State)
	require.NoError(t, s.rt.KillPod(t.Context(), runtime.PodKill{Pod: s.pod, Status: s.status()}))
	pods, err = s.rt.ListPods(t.Context())
	require.NoError(t, err)
	require.Len(t, pods, 1)
	assert.False(t, pods[0].Running(), "a list shows what is dead, too")
}

// withEvents lists all pods and receives events with the client, as an agent does, until the
// test ends.
func (s *service) withEvents(rt *cri.Runtime) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	established, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_ = rt.WatchEvents(ctx, func() { close(established) }, func(runtime.Hint) {})
	}()
	s.t.Cleanup(func() { stop(); <-done })
	<-established
	_, err := rt.ListPods(s.t.Context())
	require.NoError(s.t, err)
	s.calls(true)
}

func TestInspectWithEventsMakesNoList(t *testing.T) {
	svc := newService(t, "app:1")
	s := newSyncer(t, svc.client(cri.Options{}), podOf("a", "b"))
	svc.withEvents(s.rt)
	assert.Empty(t, s.status().Sandboxes)
	assert.Empty(t, svc.calls(true), "it has nothing")

	s.mustSync()
	svc.calls(true)
	assert.Len(t, s.status().Containers, 2)
	assert.ElementsMatch(t, []string{"PodSandboxStatus s1", "ContainerStatus c2", "ContainerStatus c3"},
		svc.calls(true))
	svc.exit("a", 1)
	for _, want := range [][]string{
		{"PodSandboxStatus s1", "ContainerStatus c2", "ContainerStatus c3"},
		{"PodSandboxStatus s1", "ContainerStatus c3"}, // c2 is dead
	} {
		assert.Equal(t, int32(1), s.status().Newest("a").ExitCode)
		assert.ElementsMatch(t, want, svc.calls(true))
	}

	require.NoError(t, s.rt.KillPod(t.Context(), runtime.PodKill{Pod: s.pod, Status: s.status()}))
	dead := s.status()
	assert.False(t, dead.Running())
	svc.calls(true)
	assert.Equal(t, dead, s.status())
	assert.Empty(t, svc.calls(true), "all of it is dead")
	require.NoError(t, s.rt.RemoveContainer(t.Context(), dead.Containers[1].ID))
	svc.calls(true)
	assert.Len(t, s.status().Containers, 1)
	require.NoError(t, s.rt.RemoveSandbox(t.Context(), "s1"))
	svc.calls(true)
	assert.Empty(t, s.status().Containers)
	assert.Empty(t, svc.calls(true), "it has nothing any more")
}

// What another client does to a pod shows when its event has come.
func TestInspectShowsWhatOthersDo(t *testing.T) {
	svc := newService(t, "app:1")
	s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
	svc.withEvents(s.rt)
	s.mustSync()
	rs, _ := svc.Clients()
	ours, err := rs.ContainerStatus(t.Context(), &criv1.ContainerStatusRequest{ContainerId: "c2"})
	require.NoError(t, err)
	created, err := rs.CreateContainer(t.Context(), &criv1.CreateContainerRequest{PodSandboxId: "s1",
		SandboxConfig: &criv1.PodSandboxConfig{}, Config: &criv1.ContainerConfig{
			Metadata: &criv1.ContainerMetadata{Name: "other"}, Image: &criv1.ImageSpec{Image: "app:1"},
			Labels: ours.GetStatus().GetLabels(),
		}})
	require.NoError(t, err)
	require.NoError(t, svc.UntilEventsRead(t.Context()))
	assert.Eventually(t, func() bool { return len(s.status().Containers) == 2 }, time.Minute, time.Millisecond)
	_, err = rs.RemoveContainer(t.Context(), &criv1.RemoveContainerRequest{ContainerId: created.GetContainerId()})
	require.NoError(t, err)
	assert.Len(t, s.status().Containers, 1)
	_, err = rs.RemovePodSandbox(t.Context(), &criv1.RemovePodSandboxRequest{PodSandboxId: "s1"})
	require.NoError(t, err)
	st := s.status()
	assert.Empty(t, st.Sandboxes)
	assert.Empty(t, st.Containers)
}

// A call that was cut off may have created something.
func TestInspectListsAfterAFailedCall(t *testing.T) {
	for _, call := range []string{"RunPodSandbox", "CreateContainer"} {
		t.Run(call, func(t *testing.T) {
			svc := newService(t, "app:1")
			s := newSyncer(t, svc.client(cri.Options{}), podOf("a"))
			svc.withEvents(s.rt)
			svc.InjectEvents(fake.EventFault{Lose: true})
			svc.Inject(fake.Fault{Call: call, Late: true, Err: status.Error(codes.DeadlineExceeded, "too slow")})
			_, err := s.sync()
			require.Error(t, err)
			svc.calls(true)
			st := s.status()
			assert.Len(t, st.Sandboxes, 1)
			assert.Subset(t, svc.calls(true), []string{"ListPodSandbox", "ListContainers"})
			if call == "CreateContainer" {
				assert.Len(t, st.Containers, 1)
			}
			s.status()
			assert.NotContains(t, svc.calls(true), "ListContainers", "the list has shown it")
		})
	}
}
