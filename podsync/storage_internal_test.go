package podsync

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestCriticalPodsAreNotEvicted(t *testing.T) {
	pod := testpod.New("web", testpod.Static)
	assert.False(t, runtime.HasCriticalPriority(pod), "on a node without an API server all pods are static")
	for priority, want := range map[int32]bool{0: false, 1_999_999_999: false, 2_000_000_000: true, 2_000_001_000: true} {
		pod.Spec.Priority = &priority
		assert.Equal(t, want, runtime.HasCriticalPriority(pod))
	}
}

func TestStorageExceeded(t *testing.T) {
	limited := func(name, limit string) v1.Container {
		c := v1.Container{Name: name}
		if limit != "" {
			c.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(limit)}
		}
		return c
	}
	const mi = 1 << 20
	for name, tc := range map[string]struct {
		a, b string
		use  storage
		want string
	}{
		"no limit":             {use: storage{map[string]int64{"a": 100 * mi}, 100 * mi}},
		"at the limit":         {a: "3Mi", use: storage{map[string]int64{"a": 3 * mi}, 0}},
		"a container":          {a: "3Mi", b: "9Mi", use: storage{map[string]int64{"a": 4 * mi}, 0}, want: `Container a exceeded its local ephemeral storage limit "3Mi". `},
		"all together":         {a: "3Mi", b: "3Mi", use: storage{map[string]int64{"a": 2 * mi, "b": 2 * mi}, 3 * mi}, want: `Pod ephemeral local storage usage exceeds the total limit of containers 6Mi. `},
		"one has no limit":     {a: "3Mi", use: storage{map[string]int64{"b": 4 * mi}, 0}, want: `Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. `},
		"volumes of the other": {a: "3Mi", b: "3Mi", use: storage{map[string]int64{}, 6 * mi}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testpod.New("web", testpod.Container(limited("a", tc.a), limited("b", tc.b)))
			assert.Equal(t, tc.want, tc.use.exceeded(pod))
			assert.Equal(t, tc.a+tc.b != "", hasStorageLimit(pod))
		})
	}
}
