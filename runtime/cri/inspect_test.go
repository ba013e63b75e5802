package cri

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
	"k8s.io/apimachinery/pkg/api/resource"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

func TestInspectPod(t *testing.T) {
	svc := newService("app:1")
	pod := podOf("a")
	pod.Spec.Containers[0].Lifecycle = preStopExec("bye")
	pod.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: "web", ContainerPort: 80}}
	s := running(t, svc, Options{}, pod)
	c := svc.byName("a")
	require.Len(t, c.config.Mounts, 2, "hosts and termination log")
	require.NoError(t, os.WriteFile(c.config.Mounts[1].HostPath, []byte("last words"), 0o600))
	svc.exit("a", 3)

	st := s.status()
	assert.Equal(t, runtime.RefOf(pod), st.PodRef)
	assert.Zero(t, st.Mark)
	require.Len(t, st.Containers, 1)
	got := st.Containers[0]
	assert.Equal(t, runtime.Container{
		ID: runtime.ContainerID{Type: "fake", ID: c.id}, Name: "a", SandboxID: "s1", State: runtime.ContainerExited,
		CreatedAt: time.Unix(0, c.created), Hash: runtime.ContainerHash(&pod.Spec.Containers[0]),
	}, got.Container)
	assert.Equal(t, int32(3), got.ExitCode)
	assert.Equal(t, "Error", got.Reason)
	assert.Equal(t, "last words", got.Message)
	assert.Equal(t, time.Unix(0, c.finished), got.FinishedAt)
	assert.Equal(t, int64(30), *got.GracePeriod)
	assert.Equal(t, pod.Spec.Containers[0].Lifecycle.PreStop, got.PreStop)
	assert.Equal(t, pod.Spec.Containers[0].Ports, got.Ports)
	assert.Equal(t, "ref@sha256:1", got.ImageRef)
	assert.Equal(t, "ref@sha256:1", got.ImageID, "runtimes that do not tell the ID")
	assert.Equal(t, c.logPath, got.LogPath)
	assert.Len(t, got.Mounts, 2)

	sandbox := st.ReadySandbox()
	require.NotNil(t, sandbox)
	assert.Equal(t, []string{"10.0.0.7", "fd00::7"}, sandbox.IPs)
	assert.False(t, sandbox.HostNetwork)
	assert.Equal(t, "web", sandbox.Labels["io.kubernetes.pod.name"])
}

func TestInspectUnknownPod(t *testing.T) {
	svc := newService()
	st, err := svc.runtime(Options{}).InspectPod(t.Context(), runtime.PodRef{UID: "u", Namespace: "n", Name: "p"})
	require.NoError(t, err)
	assert.Empty(t, st.Sandboxes)
	assert.Empty(t, st.Containers)
	_, err = svc.runtime(Options{}).InspectPod(t.Context(), runtime.PodRef{Namespace: "n", Name: "p"})
	assert.Error(t, err, "an empty UID selects nothing, not everything")
}

func TestInspectLeavesOutWhatIsRemovedMeanwhile(t *testing.T) {
	svc := newService("app:1")
	s := running(t, svc, Options{}, podOf("a", "b"))
	gone := svc.byName("a").id
	svc.before = func(_ context.Context, method, about string) error {
		if about == gone || about == "s1" {
			return notFound("thing", about)
		}
		return nil
	}
	s.rt = svc.runtime(Options{}) // one that has not asked about the sandbox yet
	st := s.status()
	require.Len(t, st.Containers, 1)
	assert.Equal(t, "b", st.Containers[0].Name)
	assert.Empty(t, st.Sandboxes)
	assert.Empty(t, st.IPs)
}

// Of a ready sandbox nothing changes but its state, which the list tells.
func TestInspectAsksOnceAboutAReadySandbox(t *testing.T) {
	svc := newService("app:1")
	s := running(t, svc, Options{}, podOf("a"))
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
	fresh := &syncer{t: t, rt: svc.runtime(Options{}), pod: s.pod, dir: s.dir}
	first, n := asked(fresh)
	assert.Equal(t, 1, n)
	for _, again := range []*syncer{fresh, s} {
		st, n := asked(again)
		assert.Equal(t, 0, n)
		assert.Equal(t, first, st)
	}
	svc.mu.Lock()
	svc.sandboxes["s1"].state = criv1.PodSandboxState_SANDBOX_NOTREADY
	svc.mu.Unlock()
	st, _ := asked(fresh)
	assert.Equal(t, runtime.SandboxNotReady, st.Sandboxes[0].State)
	assert.Empty(t, st.IPs)

	// One without an address is asked about until it has one.
	svc.mu.Lock()
	svc.sandboxes["s1"].state, svc.ip = criv1.PodSandboxState_SANDBOX_READY, "not yet"
	svc.mu.Unlock()
	fresh.rt = svc.runtime(Options{})
	for range 2 {
		_, n := asked(fresh)
		assert.Equal(t, 1, n)
	}
}

func TestInspectFails(t *testing.T) {
	svc := newService("app:1")
	s := running(t, svc, Options{}, podOf("a"))
	svc.before = func(_ context.Context, method, about string) error {
		if method == "ContainerStatus" {
			return status.Error(codes.Unavailable, "connection refused")
		}
		return nil
	}
	_, err := s.rt.InspectPod(t.Context(), runtime.RefOf(s.pod))
	assert.ErrorIs(t, err, runtime.ErrUnavailable)
	assert.EqualError(t, err, "pod default/web(uid-1), container a: ContainerStatus: connection refused: container runtime unavailable")
}

func TestStatusOf(t *testing.T) {
	id := runtime.ContainerID{Type: "fake", ID: "c"}
	full := func(state criv1.ContainerState) *criv1.ContainerStatus {
		return &criv1.ContainerStatus{
			Metadata: &criv1.ContainerMetadata{Name: "a"}, State: state, CreatedAt: 1, StartedAt: 2, FinishedAt: 3,
			ExitCode: 4, Reason: "OOMKilled", Message: "m", ImageRef: "ref", ImageId: "id", Image: &criv1.ImageSpec{Image: "app:1"},
			StopSignal: criv1.Signal_SIGNAL_SIGINT,
			User:       &criv1.ContainerUser{Linux: &criv1.LinuxContainerUser{Uid: 7, Gid: 8, SupplementalGroups: []int64{9}}},
		}
	}
	for state, want := range map[criv1.ContainerState]runtime.ContainerStatus{
		criv1.ContainerState_CONTAINER_CREATED: {Container: runtime.Container{State: runtime.ContainerCreated}},
		criv1.ContainerState_CONTAINER_RUNNING: {Container: runtime.Container{State: runtime.ContainerRunning}, StartedAt: time.Unix(0, 2)},
		criv1.ContainerState_CONTAINER_UNKNOWN: {Container: runtime.Container{State: runtime.ContainerUnknown}, StartedAt: time.Unix(0, 2)},
		criv1.ContainerState_CONTAINER_EXITED: {
			Container: runtime.Container{State: runtime.ContainerExited}, StartedAt: time.Unix(0, 2), FinishedAt: time.Unix(0, 3),
			ExitCode: 4, Reason: "OOMKilled", Message: "m",
		},
	} {
		t.Run(string(want.State), func(t *testing.T) {
			want.ID, want.Name, want.SandboxID, want.CreatedAt = id, "a", "s", time.Unix(0, 1)
			want.Image, want.ImageRef, want.ImageID = "app:1", "ref", "id"
			sigint := v1.Signal("SIGINT")
			want.StopSignal = &sigint
			want.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 7, GID: 8, SupplementalGroups: []int64{9}}}
			assert.Equal(t, want, statusOf(id, "s", full(state), &crimeta.Record{}))
		})
	}
	// containerd gives a container that could not be started no time of start.
	s := full(criv1.ContainerState_CONTAINER_EXITED)
	s.StartedAt = 0
	assert.True(t, statusOf(id, "s", s, &crimeta.Record{}).StartedAt.IsZero())
}

func TestResourcesOf(t *testing.T) {
	assert.Nil(t, resourcesOf(nil))
	assert.Nil(t, resourcesOf(&criv1.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: -1, CpuShares: 2}))
	for milli := int64(3); milli < 5000; milli++ {
		shares := milli * 1024 / 1000 // as kubelet computes them
		got := resourcesOf(&criv1.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: milli * 100, CpuShares: shares, MemoryLimitInBytes: 1 << 20})
		limit, request := got.Limits[v1.ResourceCPU], got.Requests[v1.ResourceCPU]
		assert.Equal(t, milli, limit.MilliValue())
		assert.Equal(t, milli, request.MilliValue())
		memory := got.Limits[v1.ResourceMemory]
		assert.True(t, memory.Equal(resource.MustParse("1Mi")))
	}
}

func TestAddresses(t *testing.T) {
	assert.Empty(t, addresses(nil))
	assert.Equal(t, []string{"10.0.0.1"}, addresses(&criv1.PodSandboxNetworkStatus{Ip: "10.0.0.1"}))
	assert.Nil(t, addresses(&criv1.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: []*criv1.PodIP{{Ip: "what"}}}))
}

func TestListPods(t *testing.T) {
	svc := newService("app:1")
	s := running(t, svc, Options{}, podOf("a"))
	svc.exit("a", 1)
	s.mustSync()
	svc.sandboxes["foreign"] = &fakeSandbox{id: "foreign", req: &criv1.RunPodSandboxRequest{Config: &criv1.PodSandboxConfig{
		Metadata: &criv1.PodSandboxMetadata{Name: "crictl", Uid: "x"},
	}}}
	svc.calls(true)

	pods, err := s.rt.ListPods(t.Context())
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"ListPodSandbox", "ListContainers"}, svc.calls(true))
	require.Len(t, pods, 1, "what has not kubelet's labels is nobody's pod")
	assert.Equal(t, runtime.RefOf(s.pod), pods[0].PodRef)
	require.Len(t, pods[0].Containers, 2)
	assert.Equal(t, runtime.ContainerRunning, pods[0].Containers[0].State, "the newest first")
	assert.Equal(t, runtime.ContainerHash(&s.pod.Spec.Containers[0]), pods[0].Containers[0].Hash)

	assert.Equal(t, runtime.ContainerExited, pods[0].Containers[1].State)
	require.NoError(t, s.rt.KillPod(t.Context(), runtime.PodKill{Pod: s.pod, Status: s.status()}))
	pods, err = s.rt.ListPods(t.Context())
	require.NoError(t, err)
	require.Len(t, pods, 1)
	assert.False(t, pods[0].Running(), "a list shows what is dead, too")
}

func TestOrder(t *testing.T) {
	container := func(name string, attempt uint32, created int64) *criv1.Container {
		return &criv1.Container{Id: name, Metadata: &criv1.ContainerMetadata{Name: name, Attempt: attempt}, CreatedAt: created}
	}
	type key struct {
		name    string
		attempt uint32
	}
	tests := []struct {
		name string
		in   []*criv1.Container
		want []key
	}{
		{"by time", []*criv1.Container{container("a", 0, 1), container("b", 0, 3), container("a", 1, 2)}, []key{{"b", 0}, {"a", 1}, {"a", 0}}},
		{"same time", []*criv1.Container{container("a", 0, 1), container("a", 1, 1)}, []key{{"a", 1}, {"a", 0}}},
		{"the clock was set back", []*criv1.Container{container("a", 0, 100), container("b", 0, 50), container("a", 1, 10)}, []key{{"a", 1}, {"b", 0}, {"a", 0}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sortContainers(tt.in)
			var got []key
			for _, c := range tt.in {
				got = append(got, key{c.Metadata.Name, c.Metadata.Attempt})
			}
			assert.Equal(t, tt.want, got)
		})
	}
	sandboxes := []*criv1.PodSandbox{
		{Id: "old", Metadata: &criv1.PodSandboxMetadata{Attempt: 0}, CreatedAt: 100},
		{Id: "new", Metadata: &criv1.PodSandboxMetadata{Attempt: 1}, CreatedAt: 10},
	}
	sortSandboxes(sandboxes)
	assert.Equal(t, "new", sandboxes[0].Id)
}
