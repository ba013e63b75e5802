package cri

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

func TestStatusOf(t *testing.T) {
	id := runtime.ContainerID{Type: "fake", ID: "c"}
	full := func(state criv1.ContainerState) *criv1.ContainerStatus {
		return &criv1.ContainerStatus{
			Metadata: &criv1.ContainerMetadata{Name: "a"}, State: state, CreatedAt: 1, StartedAt: 2, FinishedAt: 3,
			ExitCode: 4, Reason: "OOMKilled", Message: "m", ImageRef: "ref", ImageId: "id",
			Image:      &criv1.ImageSpec{Image: "app:1"},
			StopSignal: criv1.Signal_SIGNAL_SIGINT,
			User: &criv1.ContainerUser{Linux: &criv1.LinuxContainerUser{Uid: 7, Gid: 8,
				SupplementalGroups: []int64{9}}},
		}
	}
	for state, want := range map[criv1.ContainerState]runtime.ContainerStatus{
		criv1.ContainerState_CONTAINER_CREATED: {Container: runtime.Container{State: runtime.ContainerCreated}},
		criv1.ContainerState_CONTAINER_RUNNING: {Container: runtime.Container{State: runtime.ContainerRunning},
			StartedAt: time.Unix(0, 2)},
		criv1.ContainerState_CONTAINER_UNKNOWN: {Container: runtime.Container{State: runtime.ContainerUnknown},
			StartedAt: time.Unix(0, 2)},
		criv1.ContainerState_CONTAINER_EXITED: {
			Container: runtime.Container{State: runtime.ContainerExited}, StartedAt: time.Unix(0, 2),
			FinishedAt: time.Unix(0, 3),
			ExitCode:   4, Reason: "OOMKilled", Message: "m",
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
	// Runtimes made before CRI had the field do not tell the ID of an image.
	s := full(criv1.ContainerState_CONTAINER_RUNNING)
	s.ImageId = ""
	assert.Equal(t, "ref", statusOf(id, "s", s, &crimeta.Record{}).ImageID)
	// containerd gives a container that could not be started no time of start.
	s = full(criv1.ContainerState_CONTAINER_EXITED)
	s.StartedAt = 0
	assert.True(t, statusOf(id, "s", s, &crimeta.Record{}).StartedAt.IsZero())
}

func TestResourcesOf(t *testing.T) {
	assert.Nil(t, resourcesOf(nil))
	least := &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(2,
		resource.DecimalSI)}}
	assert.Equal(t, least, resourcesOf(&criv1.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: -1, CpuShares: 2}),
		"as little as none")
	for files, want := range map[[2]string]string{{"0", "0"}: "0", {"4096", ""}: "4Ki", {"", "8192"}: "8Ki"} {
		got := resourcesOf(&criv1.LinuxContainerResources{CpuShares: 2, Unified: map[string]string{
			"memory.min": files[0], "memory.low": files[1], "memory.high": "12288"}})
		assert.Equal(t, want, got.Requests.Memory().String(), "protected memory")
	}
	for milli := int64(3); milli < 5000; milli++ {
		shares := milli * 1024 / 1000 // as kubelet computes them
		got := resourcesOf(&criv1.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: milli * 100, CpuShares: shares,
			MemoryLimitInBytes: 1 << 20})
		limit, request := got.Limits[v1.ResourceCPU], got.Requests[v1.ResourceCPU]
		assert.Equal(t, milli, limit.MilliValue())
		assert.Equal(t, milli, request.MilliValue())
		memory := got.Limits[v1.ResourceMemory]
		assert.True(t, memory.Equal(resource.MustParse("1Mi")))
	}
}

func TestAddresses(t *testing.T) {
	for name, tc := range map[string]struct {
		network *criv1.PodSandboxNetworkStatus
		want    []string
		known   bool
	}{
		"not handled by the runtime": {nil, nil, false},
		"none":                       {&criv1.PodSandboxNetworkStatus{}, nil, true},
		"one":                        {&criv1.PodSandboxNetworkStatus{Ip: "10.0.0.1"}, []string{"10.0.0.1"}, true},
		"malformed":                  {&criv1.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: []*criv1.PodIP{{Ip: "what"}}}, nil, false},
		// It would be a line of the pod's hosts file, and part of its status.
		"a zone of two lines": {&criv1.PodSandboxNetworkStatus{Ip: "fe80::1%x\n192.0.2.1\tapi.example\x1b[2J"}, nil, false},
		"a zone":              {&criv1.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: []*criv1.PodIP{{Ip: "fe80::1%eth0"}}}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			ips, known := addresses(tc.network)
			assert.Equal(t, tc.want, ips)
			assert.Equal(t, tc.known, known)
		})
	}
}
