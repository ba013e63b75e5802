package podspec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestBoundedReferences(t *testing.T) {
	const most = podspec.MaxReferences
	for name, test := range map[string]struct {
		main, ephemeral int // references
		refs, all       int // -1: nil
		within          bool
	}{
		"none":                            {0, 0, 0, -1, true},
		"the maximum":                     {most, 0, most, -1, true},
		"the maximum with ephemeral ones": {most - 1, 1, most, -1, true},
		"too many":                        {most + 1, 0, most + 1, -1, false},
		"too many with ephemeral ones":    {most, 1, most, most + 1, true},
		"too many without ephemeral ones": {most + 1, 1, most + 2, -1, false},
		"too many, all of ephemeral ones": {0, most + 1, 0, most + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{}
			if test.ephemeral > 0 {
				pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{}}
			}
			refs, all, within := podspec.BoundedReferences(pod, func(pod *v1.Pod) []int {
				n := test.main
				if len(pod.Spec.EphemeralContainers) > 0 {
					n += test.ephemeral
				}
				return make([]int, n)
			})
			assert.Equal(t, test.within, within)
			assert.Len(t, refs, test.refs)
			if test.all < 0 {
				assert.Nil(t, all)
			} else {
				assert.Len(t, all, test.all)
			}
			assert.Equal(t, test.ephemeral > 0, len(pod.Spec.EphemeralContainers) > 0, "the pod is not changed")
		})
	}
}
