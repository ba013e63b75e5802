package podspec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func cpu(amount string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(amount)}}
}

// pod returns a pod whose containers request CPU, each with another image in each version.
func pod(version, whole, initContainer, a, b string) *v1.Pod {
	resources := cpu(whole)
	p := &v1.Pod{Spec: v1.PodSpec{
		Resources:      &resources,
		InitContainers: []v1.Container{{Name: "init", Image: version, Resources: cpu(initContainer)}},
		Containers: []v1.Container{{Name: "a", Image: version, Resources: cpu(a)},
			{Name: "b", Image: version, Resources: cpu(b)}},
	}}
	p.Name = "web"
	return p
}

func TestWithResources(t *testing.T) {
	was := pod("1", "4", "1", "1", "2")
	for name, now := range map[string]*v1.Pod{
		"a container":       pod("2", "4", "1", "1", "3"),
		"an init container": pod("2", "4", "2", "1", "2"),
		"the whole pod":     pod("2", "5", "1", "1", "2"),
		"all":               pod("2", "5", "2", "2", "3"),
	} {
		before := now.DeepCopy()
		assert.False(t, podspec.SameResources(now, was), name)
		assert.Equal(t, pod("2", "4", "1", "1", "2"), podspec.WithResources(now, was), name)
		assert.Equal(t, before, now, "the pod is not changed")
	}
	equal := pod("2", "4000m", "1000m", "1", "2")
	assert.Same(t, equal, podspec.WithResources(equal, was))
	assert.True(t, podspec.SameResources(equal, was))
	fewer := pod("2", "4", "1", "3", "2")
	fewer.Spec.Containers = fewer.Spec.Containers[:1]
	assert.Equal(t, cpu("1"), podspec.WithResources(fewer, was).Spec.Containers[0].Resources)
	assert.Len(t, podspec.WithResources(fewer, was).Spec.Containers, 1)
	more := podspec.WithResources(was, fewer)
	assert.Equal(t, []v1.ResourceRequirements{cpu("3"), cpu("2")},
		[]v1.ResourceRequirements{more.Spec.Containers[0].Resources, more.Spec.Containers[1].Resources})
}

// Limits of volumes in memory are resources.
func TestWithVolumesInMemory(t *testing.T) {
	volume := func(medium v1.StorageMedium, size string) *v1.Pod {
		p := pod("1", "4", "1", "1", "2")
		p.Spec.Volumes = []v1.Volume{{Name: "config"}, {Name: "v", VolumeSource: v1.VolumeSource{
			EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}}}
		if size != "" {
			p.Spec.Volumes[1].EmptyDir.SizeLimit = new(resource.MustParse(size))
		}
		return p
	}
	was, now := volume(v1.StorageMediumMemory, "1Mi"), volume(v1.StorageMediumMemory, "2Mi")
	assert.Equal(t, was, podspec.WithResources(now, was))
	assert.Equal(t, volume(v1.StorageMediumMemory, "2Mi"), now, "the pod is not changed")
	for _, other := range []*v1.Pod{volume(v1.StorageMediumMemory, "2048Ki"), volume(v1.StorageMediumMemory, ""),
		volume(v1.StorageMediumDefault, "1Mi"), pod("1", "4", "1", "1", "2")} {
		assert.True(t, podspec.SameResources(now, other))
	}
	assert.True(t, podspec.SameResources(volume(v1.StorageMediumDefault, "2Mi"), was), "on disk")
}

func TestResizeMessage(t *testing.T) {
	p := pod("1", "4", "1", "500m", "2")
	assert.Equal(t, `Pod resize error: {"initContainers":[{"name":"init","resources":{"requests":{"cpu":"1"}}}],`+
		`"containers":[{"name":"a","resources":{"requests":{"cpu":"500m"}}},{"name":"b","resources":{"requests":{"cpu":"2"}}}],"generation":3,"error":"no"}`,
		podspec.ResizeMessage("Pod resize error", p, 3, "no"))
	assert.Equal(t, `Pod resize started: {"containers":[{"name":"c","resources":{}}],"generation":1}`,
		podspec.ResizeMessage("Pod resize started", &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}},
			1, ""))
}

// A container without a limit has that of its pod, also for a restart by the resize policy.
func TestLimitOfThePod(t *testing.T) {
	limits := func(amount string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse(amount)}}
	}
	whole := limits("2")
	p := &v1.Pod{Spec: v1.PodSpec{Resources: &whole}}
	policy := []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
	own, none := &v1.Container{Resources: limits("1"), ResizePolicy: policy}, &v1.Container{ResizePolicy: policy}
	for want, c := range map[string]*v1.Container{"1": own, "2": none} {
		got := podspec.LimitOf(p, c, v1.ResourceCPU)
		assert.Equal(t, want, got.String())
	}
	larger := limits("3")
	now := &v1.Pod{Spec: v1.PodSpec{Resources: &larger}}
	assert.Equal(t, podspec.ResizeHash(p, own), podspec.ResizeHash(now, own))
	assert.NotEqual(t, podspec.ResizeHash(p, none), podspec.ResizeHash(now, none))
	assert.Equal(t, podspec.ResizeHash(&v1.Pod{}, none),
		podspec.ResizeHash(&v1.Pod{Spec: v1.PodSpec{Resources: &v1.ResourceRequirements{}}}, none))
}

func TestHeldByPod(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	p := &v1.Pod{Spec: v1.PodSpec{
		Resources: &v1.ResourceRequirements{Requests: list("2", "2Gi"),
			Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("4Gi"),
				"hugepages-2Mi": resource.MustParse("2Mi")}},
		Overhead: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")},
	}}
	got := podspec.HeldByPod(p, v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}, list("1", "3Gi"))
	text := func(l v1.ResourceList) string { return l.Cpu().String() + " " + l.Memory().String() }
	assert.Equal(t, "1 0", text(got.Requests), "it has no request of memory")
	assert.Equal(t, "0 2Gi", text(got.Limits), "without the overhead")
	assert.Contains(t, got.Limits, v1.ResourceName("hugepages-2Mi"), "it does not change")
	assert.Equal(t, "2 2Gi", text(p.Spec.Resources.Requests), "the pod is not changed")
	assert.Nil(t, podspec.HeldByPod(&v1.Pod{}, list("1", "1Gi"), nil))
}
