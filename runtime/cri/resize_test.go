package cri_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// sized returns a pod of the API server, as it is after some changes, with limits.
func sized(cpu, memory string, policy ...v1.ContainerResizePolicy) *v1.Pod {
	return testpod.With(podOf("a"), func(pod *v1.Pod) {
		pod.Generation, pod.Annotations = 2, map[string]string{podspec.AnnotationConfigSource: podspec.SourceAPI}
		limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
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
	assert.Equal(t, []string{"UpdateContainerResources c2"}, svc.calls())
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
	assert.Contains(t, res.ResizeError, `cannot decrease memory limits: attempting to set container "a" memory limit (33554432) below current usage (50331648)`)
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

func (c cutOff) UpdateContainerResources(context.Context, *criv1.UpdateContainerResourcesRequest, ...grpc.CallOption) (*criv1.UpdateContainerResourcesResponse, error) {
	c.cancel()
	return nil, context.Canceled
}

func TestResizeThatRequiresARestart(t *testing.T) {
	restart := v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}
	svc := newService(t, "app:1")
	s := running(t, svc, sized("1", "64Mi", restart))
	s.pod = sized("2", "64Mi", restart)
	s.mustSync()
	assert.Equal(t, []string{"UpdateContainerResources c2"}, svc.calls(), "CPU needs none")
	s.pod = sized("2", "128Mi", restart)
	s.mustSync()
	assert.Equal(t, []string{"StopContainer a 30", "CreateContainer a/1", "StartContainer a"}, svc.calls())
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
	assert.Equal(t, []string{"UpdateContainerResources c2"}, svc.calls())
}

// refusing refuses all changes of resources.
type refusing struct{ criv1.RuntimeServiceClient }

func (refusing) UpdateContainerResources(context.Context, *criv1.UpdateContainerResourcesRequest, ...grpc.CallOption) (*criv1.UpdateContainerResourcesResponse, error) {
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
