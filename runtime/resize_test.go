package runtime_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// list is a list of resources: names and amounts in turn.
func list(pairs ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func resizable(c v1.Container) *v1.Pod {
	pod := &v1.Pod{}
	pod.Generation, pod.Annotations = 2, map[string]string{podspec.AnnotationConfigSource: podspec.SourceAPI}
	pod.Spec.Containers = []v1.Container{c}
	return pod
}

func TestResizeDue(t *testing.T) {
	none := v1.ResourceRequirements{}
	for name, tc := range map[string]struct {
		spec, actual v1.ResourceRequirements
		want         []v1.ResourceName
	}{
		"nothing requested":              {none, none, nil},
		"as requested":                   {v1.ResourceRequirements{Requests: list("cpu", "300m"), Limits: list("cpu", "1500m", "memory", "64Mi")}, v1.ResourceRequirements{Requests: list("cpu", "300m"), Limits: list("cpu", "1500m", "memory", "64Mi")}, nil},
		"rounded by the kernel":          {v1.ResourceRequirements{Requests: list("cpu", "1m"), Limits: list("cpu", "5m")}, v1.ResourceRequirements{Limits: list("cpu", "10m")}, nil},
		"more CPUs than a weight":        {v1.ResourceRequirements{Requests: list("cpu", "300")}, v1.ResourceRequirements{Requests: list("cpu", "256")}, nil},
		"a fraction of a byte of memory": {v1.ResourceRequirements{Limits: list("memory", "1048576500m")}, v1.ResourceRequirements{Limits: list("memory", "1048577")}, nil},
		"the limit is the request": {v1.ResourceRequirements{Limits: list("cpu", "500m")},
			v1.ResourceRequirements{Requests: list("cpu", "500m"), Limits: list("cpu", "500m")}, nil},
		"a request of memory":    {v1.ResourceRequirements{Requests: list("memory", "1Gi")}, none, nil},
		"protected memory":       {v1.ResourceRequirements{Requests: list("memory", "1Gi")}, v1.ResourceRequirements{Requests: list("memory", "1Gi")}, nil},
		"other protected memory": {v1.ResourceRequirements{Requests: list("memory", "1Gi")}, v1.ResourceRequirements{Requests: list("memory", "2Gi")}, []v1.ResourceName{"memory"}},
		"another request":        {v1.ResourceRequirements{Requests: list("cpu", "301m")}, v1.ResourceRequirements{Requests: list("cpu", "300m")}, []v1.ResourceName{"cpu"}},
		"another limit of CPU":   {v1.ResourceRequirements{Requests: list("cpu", "1"), Limits: list("cpu", "2")}, v1.ResourceRequirements{Requests: list("cpu", "1"), Limits: list("cpu", "1")}, []v1.ResourceName{"cpu"}},
		"another limit, memory":  {v1.ResourceRequirements{Limits: list("memory", "65Mi")}, v1.ResourceRequirements{Limits: list("memory", "64Mi")}, []v1.ResourceName{"memory"}},
		"both, added":            {v1.ResourceRequirements{Limits: list("cpu", "1", "memory", "64Mi")}, none, []v1.ResourceName{"cpu", "memory"}},
		"a limit removed":        {none, v1.ResourceRequirements{Limits: list("memory", "64Mi")}, []v1.ResourceName{"memory"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := v1.Container{Name: "main", Resources: tc.spec}
			n := &runtime.ContainerStatus{Container: runtime.Container{Name: "main", State: runtime.ContainerRunning},
				Resources: &tc.actual}
			pod := resizable(c)
			assert.Equal(t, tc.want, runtime.ResizeDue(pod, &c, podspec.MainContainer, n))
			assert.Empty(t, runtime.ResizeDue(pod, &c, podspec.EphemeralContainer, n))
			assert.Empty(t, runtime.ResizeDue(pod, &c, podspec.MainContainer, nil))
			pod.Generation = 1
			assert.Empty(t, runtime.ResizeDue(pod, &c, podspec.MainContainer, n), "a pod that was never changed")
			pod.Generation = 2
			n.Resources = nil
			assert.Empty(t, runtime.ResizeDue(pod, &c, podspec.MainContainer, n), "not reported")
		})
	}
}

// A container without resources has the limits of its pod, and the limit of CPU is its request.
func TestResizeDueWithLimitsOfThePod(t *testing.T) {
	c := v1.Container{Name: "main"}
	pod := resizable(c)
	pod.Spec.Resources = &v1.ResourceRequirements{Limits: list("cpu", "2", "memory", "64Mi")}
	n := &runtime.ContainerStatus{Container: runtime.Container{Name: "main", State: runtime.ContainerRunning},
		Resources: &v1.ResourceRequirements{
			Requests: list("cpu", "2"), Limits: list("cpu", "2", "memory", "64Mi"),
		}}
	assert.Empty(t, runtime.ResizeDue(pod, &c, podspec.MainContainer, n))
}

func TestResizeRestarts(t *testing.T) {
	c := v1.Container{Name: "main", ResizePolicy: []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory,
		RestartPolicy: v1.RestartContainer}}}
	n := &runtime.ContainerStatus{Container: runtime.Container{Name: "main", State: runtime.ContainerRunning},
		ResizeHash: podspec.ResizeHash(&v1.Pod{}, &c)}
	c.Resources.Requests = list("cpu", "1")
	assert.False(t, runtime.ResizeRestarts(resizable(c), &c, n), "CPU needs no restart")
	c.Resources.Requests = list("memory", "64Mi")
	assert.True(t, runtime.ResizeRestarts(resizable(c), &c, n))
	assert.False(t, runtime.ResizeRestarts(&v1.Pod{}, &c, n), "a pod of another source")
	assert.False(t, runtime.ResizeRestarts(resizable(c), &c, nil))
	n.State = runtime.ContainerExited
	assert.False(t, runtime.ResizeRestarts(resizable(c), &c, n))
	whole := resizable(c)
	whole.Spec.Resources = &v1.ResourceRequirements{Limits: list("memory", "128Mi")}
	n.State, n.ResizeHash = runtime.ContainerRunning, podspec.ResizeHash(&v1.Pod{}, &c)
	assert.False(t, runtime.ResizeRestarts(whole, &c, n), "recorded by an agent that left out the limits of pods")
	n.ResizeHash = podspec.ResizeHash(whole, &c)
	whole.Spec.Resources.Limits = list("memory", "64Mi")
	assert.True(t, runtime.ResizeRestarts(whole, &c, n))
	n.State, n.ResizeHash = runtime.ContainerRunning, 0
	assert.False(t, runtime.ResizeRestarts(resizable(c), &c, n), "not recorded")
}

func TestResizeHash(t *testing.T) {
	restart := []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired},
		{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	of := func(cpu, memory string) uint64 {
		return podspec.ResizeHash(&v1.Pod{}, &v1.Container{ResizePolicy: restart,
			Resources: v1.ResourceRequirements{Limits: list("cpu", cpu, "memory", memory)}})
	}
	assert.NotZero(t, of("1", "64Mi"))
	assert.Equal(t, of("1", "64Mi"), of("2", "65536Ki"), "CPU needs no restart, and equal amounts are equal")
	assert.NotEqual(t, of("1", "64Mi"), of("1", "65Mi"))
	reported := v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(1e9, resource.BinarySI)}
	assert.Equal(t, of("1", "1G"), podspec.ResizeHash(&v1.Pod{}, &v1.Container{ResizePolicy: restart,
		Resources: v1.ResourceRequirements{Limits: reported}}), "as a runtime reports it")
	assert.Zero(t, podspec.ResizeHash(&v1.Pod{}, &v1.Container{ResizePolicy: restart[:1]}))
}

// Only what the spec has for the pod as a whole is compared, with its overhead.
func TestPodResizeDue(t *testing.T) {
	both := func(l v1.ResourceList) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: l, Limits: l}
	}
	for name, tc := range map[string]struct {
		spec, actual v1.ResourceRequirements
		want         []v1.ResourceName
	}{
		"nothing requested":       {v1.ResourceRequirements{}, both(list("cpu", "1", "memory", "1Gi")), nil},
		"as requested":            {both(list("cpu", "300m", "memory", "64Mi")), both(list("cpu", "400m", "memory", "64Mi")), nil},
		"another request":         {v1.ResourceRequirements{Requests: list("cpu", "300m")}, both(list("cpu", "401m")), []v1.ResourceName{"cpu"}},
		"another limit":           {v1.ResourceRequirements{Requests: list("cpu", "300m"), Limits: list("cpu", "500m")}, both(list("cpu", "400m")), []v1.ResourceName{"cpu"}},
		"a limit is added":        {v1.ResourceRequirements{Limits: list("memory", "64Mi")}, v1.ResourceRequirements{}, []v1.ResourceName{"memory"}},
		"no cgroup has a request": {v1.ResourceRequirements{Requests: list("memory", "64Mi")}, v1.ResourceRequirements{}, nil},
		"both":                    {both(list("cpu", "1", "memory", "64Mi")), both(list("cpu", "1", "memory", "65Mi")), []v1.ResourceName{"cpu", "memory"}},
	} {
		pod := resizable(v1.Container{Name: "main"})
		pod.Spec.Resources, pod.Spec.Overhead = &tc.spec, list("cpu", "100m")
		status := &runtime.PodStatus{Resources: &tc.actual}
		assert.Equal(t, tc.want, runtime.PodResizeDue(pod, status), name)
		assert.Empty(t, runtime.PodResizeDue(pod, nil), name)
		assert.Empty(t, runtime.PodResizeDue(pod, &runtime.PodStatus{}), "it is not known")
		pod.Generation = 1
		assert.Empty(t, runtime.PodResizeDue(pod, status), "a pod that was never changed")
		pod.Generation, pod.Spec.Resources = 2, nil
		assert.Empty(t, runtime.PodResizeDue(pod, status), "only its containers have resources")
	}
}
