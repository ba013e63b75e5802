package podspec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestMetadataField(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "shop", UID: "u1",
		Labels:      map[string]string{"b": "2", "a": `quo"ted`},
		Annotations: map[string]string{"Example.com/Note": "two\nlines"},
	}}
	for path, want := range map[string]string{
		"metadata.name":                            "web",
		"metadata.namespace":                       "shop",
		"metadata.uid":                             "u1",
		"metadata.labels":                          "a=\"quo\\\"ted\"\nb=\"2\"",
		"metadata.annotations":                     `Example.com/Note="two\nlines"`,
		"metadata.labels['b']":                     "2",
		"metadata.labels['none']":                  "",
		"metadata.annotations['Example.com/Note']": "two\nlines",
	} {
		value, ok, err := podspec.MetadataField(pod, path)
		require.NoError(t, err, path)
		assert.True(t, ok, path)
		assert.Equal(t, want, value, path)
	}
	for _, path := range []string{"", "spec.nodeName", "metadata.name['x']", "metadata.labels['b'", "['b']"} {
		_, ok, err := podspec.MetadataField(pod, path)
		require.NoError(t, err, path)
		assert.False(t, ok, path)
	}
	_, ok, err := podspec.MetadataField(pod, "metadata.labels['not a key']")
	assert.True(t, ok)
	assert.ErrorContains(t, err, "invalid key subscript in metadata.labels['not a key']")
}

func TestResourceField(t *testing.T) {
	list := func(name v1.ResourceName, amount string) v1.ResourceList {
		return v1.ResourceList{name: resource.MustParse(amount)}
	}
	pod := &v1.Pod{Spec: v1.PodSpec{Resources: &v1.ResourceRequirements{Limits: list(v1.ResourceCPU, "3")}}}
	c := &v1.Container{Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m"),
			v1.ResourceMemory: resource.MustParse("1025"), "hugepages-2Mi": resource.MustParse("4Mi")},
		Limits: list(v1.ResourceEphemeralStorage, "1Gi"),
	}}
	node := v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("1Gi"),
		"hugepages-2Mi": resource.MustParse("8Mi")}
	for _, tc := range []struct{ resource, divisor, want string }{
		{"requests.cpu", "", "2"}, // rounded up
		{"requests.cpu", "1m", "1500"},
		{"requests.memory", "1Ki", "2"},
		{"requests.memory", "", "1025"},
		{"requests.ephemeral-storage", "", "0"},
		{"requests.hugepages-2Mi", "1Mi", "4"},
		{"limits.ephemeral-storage", "1Mi", "1024"},
		{"limits.cpu", "", "3"},           // the pod's
		{"limits.memory", "1Mi", "1024"},  // the node's
		{"limits.hugepages-2Mi", "", "0"}, // never those of the node
		{"limits.hugepages-1Gi", "1M", "0"},
	} {
		ref := &v1.ResourceFieldSelector{Resource: tc.resource}
		if tc.divisor != "" {
			ref.Divisor = resource.MustParse(tc.divisor)
		}
		value, err := podspec.ResourceField(pod, c, ref, node)
		require.NoError(t, err, tc.resource)
		assert.Equal(t, tc.want, value, "%s by %q", tc.resource, tc.divisor)
	}
	for _, name := range []string{"", "requests", "requests.nvidia.com/gpu", "usage.cpu"} {
		_, err := podspec.ResourceField(pod, c, &v1.ResourceFieldSelector{Resource: name}, node)
		assert.EqualError(t, err, "unsupported container resource : "+name)
	}
}
