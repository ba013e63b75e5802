package cri_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// sized returns a pod of the API server, as it is after some changes, with limits.
func sized(cpu, memory string, policy ...v1.ContainerResizePolicy) *v1.Pod {
	return testpod.With(podOf("a"), func(pod *v1.Pod) {
		pod.Generation, pod.Annotations = 2, map[string]string{podspec.AnnotationConfigSource: podspec.SourceAPI}
		limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu),
			v1.ResourceMemory: resource.MustParse(memory)}
		pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: limits, Limits: limits}
		pod.Spec.Containers[0].ResizePolicy = policy
	})
}

func TestResizeInPlace(t *testing.T) {
	svc := newService(t, "app:1")
	s := running(t, svc, sized("1", "64Mi"))
	require.False(t, s.mustSync().Changed)
	assert.Empty(t, svc.calls(), "it has what it requests")

	s.pod = sized("250m", "128Mi")
	assert.True(t, s.mustSync().Changed)
	assert.Equal(t, []string{"UpdatePodSandboxResources s1", "UpdateContainerResources c2",
		"UpdatePodSandboxResources s1"}, svc.calls())
	got := s.status().Newest("a").Resources
	assert.Equal(t, "250m", got.Limits.Cpu().String())
	assert.Equal(t, "250m", got.Requests.Cpu().String())
	assert.Equal(t, "128Mi", got.Limits.Memory().String())
	require.False(t, s.mustSync().Changed)
	assert.Empty(t, svc.calls(), "once")
}

// The kernel would kill a process of the container.
func TestAMemoryLimitBelowTheUsageIsRefused(t *testing.T) {
	svc := newService(t, "app:1")
	s := running(t, svc, sized("1", "64Mi"))
	require.Equal(t, 1, svc.SetUsage(fake.Target{Container: "a"}, fake.Usage{Memory: 48 << 20}))
	s.pod = sized("1", "32Mi")
	res, err := s.sync()
	require.Error(t, err)
	assert.Contains(t, res.ResizeError,
		`cannot decrease memory limits: attempting to set container "a" memory limit (33554432) below current usage (50331648)`)
	assert.Equal(t, []string{}, append([]string{}, svc.calls()...))

	svc.SetUsage(fake.Target{Container: "a"}, fake.Usage{Memory: 16 << 20})
	assert.Empty(t, s.mustSync().ResizeError)
	assert.Equal(t, "32Mi", s.status().Newest("a").Resources.Limits.Memory().String())
}

// A resize does not stop half way because of one container: none is changed.
func TestAResizeIsRefusedForAllContainers(t *testing.T) {
	two := func(cpu, a, b string) *v1.Pod {
		return testpod.With(sized(cpu, a), func(pod *v1.Pod) {
			other := pod.Spec.Containers[0]
			other.Name, other.Resources = "b", sized(cpu, b).Spec.Containers[0].Resources
			pod.Spec.Containers = append(pod.Spec.Containers, other)
		})
	}
	svc := newService(t, "app:1")
	s := running(t, svc, two("1", "64Mi", "64Mi"))
	svc.SetUsage(fake.Target{Container: "b"}, fake.Usage{Memory: 48 << 20})
	var outcomes []string
	s.more = func(req *runtime.PodSync) {
		req.Record = func(r runtime.Record) {
			if r.Stage == runtime.StageDone && r.Kind == runtime.KindResizeContainer {
				outcomes = append(outcomes, r.Container+": "+r.Error)
			}
		}
	}
	s.pod = two("2", "128Mi", "32Mi")
	res, err := s.sync()
	require.Error(t, err)
	want := `cannot decrease memory limits: attempting to set container "b" memory limit (33554432) below current usage (50331648)`
	assert.Equal(t, want, res.ResizeError)
	assert.Equal(t, []string{"b: " + want}, outcomes)
	assert.Empty(t, svc.calls())

	svc.SetUsage(fake.Target{Container: "b"}, fake.Usage{Memory: 16 << 20})
	s.mustSync()
	assert.Equal(t, []string{"b: " + want, "a: ", "b: "}, outcomes)
}

// A sync that is cut off says nothing about the resize.
func TestAResizeThatIsCutOff(t *testing.T) {
	svc := newService(t, "app:1")
	rs, is := svc.Clients()
	ctx, cancel := context.WithCancel(t.Context())
	s := newSyncer(t, cri.New(cutOff{rs, cancel}, is, cri.Options{}), sized("1", "64Mi"))
	s.mustSync()
	s.pod = sized("2", "64Mi")
	res, err := s.rt.SyncPod(ctx, s.request())
	require.Error(t, err)
	assert.Empty(t, res.ResizeError)
}

// cutOff ends the context of a resize.
type cutOff struct {
	criv1.RuntimeServiceClient
	cancel context.CancelFunc
}

func (c cutOff) UpdateContainerResources(context.Context, *criv1.UpdateContainerResourcesRequest,
	...grpc.CallOption) (*criv1.UpdateContainerResourcesResponse, error) {
	c.cancel()
	return nil, context.Canceled
}

func TestResizeThatRequiresARestart(t *testing.T) {
	restart := v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}
	svc := newService(t, "app:1")
	s := running(t, svc, sized("1", "64Mi", restart))
	s.pod = sized("2", "64Mi", restart)
	s.mustSync()
	assert.Equal(t, []string{"UpdatePodSandboxResources s1", "UpdateContainerResources c2"},
		svc.calls(), "CPU needs none")
	s.pod = sized("2", "128Mi", restart)
	s.mustSync()
	assert.Equal(t, []string{"StopContainer a 30", "UpdatePodSandboxResources s1", "CreateContainer a/1",
		"StartContainer a"}, svc.calls())
	assert.Contains(t, s.eventLines(), "spec.containers{a} Killing: Container a resize requires restart")
	require.False(t, s.mustSync().Changed)
	assert.Empty(t, svc.calls(), "the new instance has them")
}

// A node may have no limits of CPU time, and a plugin of the runtime may set others: what the
// runtime does not report as it was set is set once.
func TestAResizeThatTheRuntimeDoesNotReport(t *testing.T) {
	svc := newService(t, "app:1")
	s := newSyncer(t, svc.client(cri.Options{NoCPUQuota: true}), sized("1", "64Mi"))
	s.mustSync()
	for range 3 {
		s.mustSync()
	}
	svc.calls()
	s.pod = sized("2", "64Mi")
	for range 3 {
		s.mustSync()
	}
	assert.Equal(t, []string{"UpdatePodSandboxResources s1", "UpdateContainerResources c2"}, svc.calls())
}

// growing is a runtime that grows its sandboxes, as one of virtual machines does.
type growing struct {
	criv1.RuntimeServiceClient
	calls []string
	err   error
}

func (g *growing) UpdatePodSandboxResources(_ context.Context, req *criv1.UpdatePodSandboxResourcesRequest,
	_ ...grpc.CallOption) (*criv1.UpdatePodSandboxResourcesResponse, error) {
	r := req.GetResources()
	g.calls = append(g.calls, fmt.Sprintf("sandbox %s: %d shares, quota %d/%d, %d MiB, overhead %d MiB",
		req.GetPodSandboxId(),
		r.GetCpuShares(), r.GetCpuQuota(), r.GetCpuPeriod(), r.GetMemoryLimitInBytes()>>20,
		req.GetOverhead().GetMemoryLimitInBytes()>>20))
	return &criv1.UpdatePodSandboxResourcesResponse{}, g.err
}

func (g *growing) UpdateContainerResources(ctx context.Context, req *criv1.UpdateContainerResourcesRequest,
	opts ...grpc.CallOption) (*criv1.UpdateContainerResourcesResponse, error) {
	g.calls = append(g.calls, "container "+req.GetContainerId())
	return g.RuntimeServiceClient.UpdateContainerResources(ctx, req, opts...)
}

func (g *growing) take() []string {
	calls := g.calls
	g.calls = nil
	return calls
}

// A sandbox gets more before its containers do, and less after them. The sidecar, which is as large, counts too.
func TestSandboxOfAResize(t *testing.T) {
	pod := func(cpu, memory string, policy ...v1.ContainerResizePolicy) *v1.Pod {
		return testpod.With(sized(cpu, memory, policy...), func(pod *v1.Pod) {
			side := sidecarNamed("s")
			side.Resources = sized("1", "64Mi").Spec.Containers[0].Resources
			pod.Spec.InitContainers = []v1.Container{side}
			pod.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse("8Mi")}
		})
	}
	rs, is := newService(t, "app:1").Clients()
	rt := &growing{RuntimeServiceClient: rs}
	s := newSyncer(t, cri.New(rt, is, cri.Options{}), pod("1", "64Mi"))
	s.mustSync()
	s.mustSync()
	require.Empty(t, rt.take())
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		want []string
	}{
		{"more", pod("2", "128Mi"), []string{"sandbox s1: 3072 shares, quota 300000/100000, 192 MiB, overhead 8 MiB", "container c3"}},
		{"more and less", pod("1", "256Mi"), []string{
			"sandbox s1: 3072 shares, quota 300000/100000, 320 MiB, overhead 8 MiB", "container c3",
			"sandbox s1: 2048 shares, quota 200000/100000, 320 MiB, overhead 8 MiB",
		}},
		{"less", pod("500m", "64Mi"), []string{
			"sandbox s1: 2048 shares, quota 200000/100000, 320 MiB, overhead 8 MiB", "container c3",
			"sandbox s1: 1536 shares, quota 150000/100000, 128 MiB, overhead 8 MiB",
		}},
		{"the same", pod("500m", "64Mi"), nil},
		{"no limit for all", testpod.With(pod("1", "64Mi"), func(pod *v1.Pod) {
			delete(pod.Spec.Containers[0].Resources.Limits, v1.ResourceCPU)
		}), []string{"sandbox s1: 2048 shares, quota 0/100000, 128 MiB, overhead 8 MiB", "container c3"}},
	} {
		s.pod = tc.pod
		s.mustSync()
		assert.Equal(t, tc.want, rt.take(), tc.name)
	}

	s.pod = pod("2", "64Mi")
	rt.err = status.Error(codes.Internal, "no CPUs left")
	var outcomes []string
	s.more = func(req *runtime.PodSync) {
		req.Record = func(r runtime.Record) {
			if r.Stage == runtime.StageDone && r.Kind == runtime.KindResizeContainer {
				outcomes = append(outcomes, r.Container+": "+r.Error)
			}
		}
	}
	res, err := s.sync()
	require.ErrorContains(t, err, "resize rejected")
	assert.Contains(t, res.ResizeError, "no CPUs left")
	require.Len(t, outcomes, 1)
	assert.Contains(t, outcomes[0], "a: ")
	assert.Contains(t, outcomes[0], "no CPUs left")
	assert.Len(t, rt.take(), 1, "no container is resized")
	for _, err := range []error{status.Error(codes.Unimplemented, "unknown method"),
		status.Error(codes.Unknown, "not implemented yet")} {
		rt.err = err
		s.pod = pod("3", "64Mi")
		assert.Empty(t, s.mustSync().ResizeError)
		assert.Equal(t, "3", s.status().Newest("a").Resources.Limits.Cpu().String())
		s.pod = pod("2", "64Mi")
		s.mustSync()
		rt.take()
	}

	rt.err = nil
	s.more = func(req *runtime.PodSync) {
		req.EditSandbox = func(context.Context) (runtime.SandboxEdits, error) {
			return runtime.SandboxEdits{Resources: &pod("7", "1Gi").Spec.Containers[0].Resources}, nil
		}
	}
	s.pod = pod("1", "64Mi")
	s.mustSync()
	assert.Equal(t, []string{"sandbox s1: 7168 shares, quota 700000/100000, 1024 MiB, overhead 8 MiB", "container c3"},
		rt.take(), "a component decides")
}

// An init container that runs is resized, and one that has not started gets its new resources then.
func TestResizeOfInitContainers(t *testing.T) {
	pod := func(memory string) *v1.Pod {
		return testpod.With(sized("1", "64Mi"), func(pod *v1.Pod) {
			for _, name := range []string{"i", "j"} {
				c := containerNamed(name)
				c.Resources = sized("1", memory).Spec.Containers[0].Resources
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
			}
		})
	}
	svc := newService(t, "app:1")
	s := newSyncer(t, svc.client(cri.Options{}), pod("64Mi"))
	s.mustSync()
	svc.calls()
	s.pod = pod("128Mi")
	s.mustSync()
	assert.Equal(t, []string{"UpdatePodSandboxResources s1", "UpdateContainerResources c2"}, svc.calls())
	assert.Equal(t, "128Mi", s.status().Newest("i").Resources.Limits.Memory().String())
	svc.exit("i", 0)
	s.mustSync()
	assert.Equal(t, []string{"CreateContainer j/0", "StartContainer j"}, svc.calls())
	assert.Equal(t, "128Mi", s.status().Newest("j").Resources.Limits.Memory().String())
	s.pod = pod("32Mi")
	s.mustSync()
	assert.Equal(t, []string{"UpdatePodSandboxResources s1", "UpdateContainerResources c3",
		"UpdatePodSandboxResources s1"}, svc.calls(), "not one that has ended")
}

// refusing refuses all changes of resources.
type refusing struct{ criv1.RuntimeServiceClient }

func (refusing) UpdateContainerResources(context.Context, *criv1.UpdateContainerResourcesRequest,
	...grpc.CallOption) (*criv1.UpdateContainerResourcesResponse, error) {
	return nil, errors.New("no cgroup to change")
}

func TestAResizeThatTheRuntimeRefuses(t *testing.T) {
	svc := newService(t, "app:1")
	rs, is := svc.Clients()
	s := newSyncer(t, cri.New(refusing{rs}, is, cri.Options{}), sized("1", "64Mi"))
	s.mustSync()
	s.pod = sized("2", "64Mi")
	for range 2 {
		res, err := s.sync()
		require.ErrorContains(t, err, "container a: UpdateContainerResources")
		assert.Contains(t, res.ResizeError, "no cgroup to change")
		assert.False(t, res.Changed)
	}
}

// A container without limits of its own has those of its pod, also when these change more than once. The sandbox is
// told once what the pod as a whole gets. While a component cannot resize the pod, nothing is.
func TestResizeOfThePodAsAWhole(t *testing.T) {
	list := func(cpu, memory string) *v1.ResourceRequirements {
		limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu),
			v1.ResourceMemory: resource.MustParse(memory)}
		return &v1.ResourceRequirements{Requests: limits, Limits: limits}
	}
	pod := func(cpu, memory string) *v1.Pod {
		return testpod.With(sized("100m", "16Mi"), func(pod *v1.Pod) {
			pod.Spec.Resources = list(cpu, memory)
			pod.Spec.Containers = append(pod.Spec.Containers, containerNamed("b"))
		})
	}
	rs, is := newService(t, "app:1").Clients()
	rt := &growing{RuntimeServiceClient: rs}
	s := newSyncer(t, cri.New(rt, is, cri.Options{}), pod("1", "64Mi"))
	inForce, hold := list("1", "64Mi"), false
	s.more = func(req *runtime.PodSync) {
		status := *req.Status
		status.Resources, req.Status, req.HoldResize = inForce, &status, hold
	}
	s.mustSync()
	s.mustSync()
	require.Empty(t, rt.take())

	s.pod, hold = pod("2", "32Mi"), true
	require.False(t, s.mustSync().Changed)
	require.Empty(t, rt.take())
	hold = false
	s.mustSync()
	want := []string{"sandbox s1: 2048 shares, quota 200000/100000, 64 MiB, overhead 0 MiB", "container c3",
		"sandbox s1: 2048 shares, quota 200000/100000, 32 MiB, overhead 0 MiB"}
	assert.Equal(t, want, rt.take())
	assert.Equal(t, "32Mi", s.status().Newest("b").Resources.Limits.Memory().String())
	s.mustSync()
	require.Empty(t, rt.take(), "once")
	inForce = nil
	s.pod = pod("2", "48Mi")
	s.mustSync()
	assert.Equal(t, []string{"sandbox s1: 2048 shares, quota 200000/100000, 48 MiB, overhead 0 MiB", "container c3"},
		rt.take(), "no component holds them")
	s.mustSync()
	require.Empty(t, rt.take(), "once")
	inForce = list("2", "32Mi")
	for _, cpu := range []string{"1", "2"} {
		s.pod = pod(cpu, "32Mi")
		s.mustSync()
		assert.Contains(t, rt.take(), "container c3")
		assert.Equal(t, cpu, s.status().Newest("b").Resources.Limits.Cpu().String())
	}
}

// The CPUs of a running container change, and nothing else of it.
func TestSetCPUSet(t *testing.T) {
	svc := newService(t, "app:1")
	s := running(t, svc, sized("1", "64Mi"))
	id := s.status().Newest("a").ID
	require.NoError(t, s.rt.SetCPUSet(t.Context(), id, "0,2-3"))
	assert.Equal(t, []string{"UpdateContainerResources c2"}, svc.calls())
	assert.Equal(t, "64Mi", s.status().Newest("a").Resources.Limits.Memory().String())
	require.False(t, s.mustSync().Changed, "it is no resize")
	require.ErrorIs(t, s.rt.SetCPUSet(t.Context(), runtime.ContainerID{ID: "missing"}, "0"), runtime.ErrNotFound)
}
