package reuse_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/internal/reuse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReuse(t *testing.T) {
	spec := &v1.PodSpec{
		InitContainers: []v1.Container{{Name: "one"},
			{Name: "side", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}, {Name: "two"}},
		Containers: []v1.Container{{Name: "a"}, {Name: "b"}},
	}
	given := map[string][]int{"one": {3, 2, 1}, "side": {2}, "two": {3, 4}, "a": {4}}
	for name, want := range map[string]struct {
		ended []string
		units []int
	}{
		"one": {nil, nil}, "side": {[]string{"one"}, []int{1, 2, 3}}, "two": {[]string{"one"}, []int{1, 3}},
		"a": {[]string{"one", "two"}, []int{1, 3, 4}}, "b": {[]string{"one", "two"}, []int{1, 3}},
	} {
		assert.Equal(t, want.ended, reuse.Ended(spec, name), name)
		assert.Equal(t, want.units, reuse.Units(spec, name, func(name string) []int { return given[name] }), name)
	}
}
