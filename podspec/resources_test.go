package podspec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/podspec"
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
		Containers:     []v1.Container{{Name: "a", Image: version, Resources: cpu(a)}, {Name: "b", Image: version, Resources: cpu(b)}},
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
	assert.Equal(t, []v1.ResourceRequirements{cpu("3"), cpu("2")}, []v1.ResourceRequirements{more.Spec.Containers[0].Resources, more.Spec.Containers[1].Resources})
}

func TestResizeMessage(t *testing.T) {
	p := pod("1", "4", "1", "500m", "2")
	assert.Equal(t, `Pod resize error: {"initContainers":[{"name":"init","resources":{"requests":{"cpu":"1"}}}],`+
		`"containers":[{"name":"a","resources":{"requests":{"cpu":"500m"}}},{"name":"b","resources":{"requests":{"cpu":"2"}}}],"generation":3,"error":"no"}`,
		podspec.ResizeMessage("Pod resize error", p, 3, "no"))
	assert.Equal(t, `Pod resize started: {"containers":[{"name":"c","resources":{}}],"generation":1}`,
		podspec.ResizeMessage("Pod resize started", &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}, 1, ""))
}
