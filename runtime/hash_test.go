package runtime_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// The hashes are those of HashContainer in k8s.io/kubernetes v1.36.3,
// pkg/kubelet/container.
func TestContainerHashIsKubelets(t *testing.T) {
	for _, tc := range []struct {
		name, image string
		want        uint64
	}{
		{"", "", 0xedd67cc4},
		{"main", "busybox", 0xb34e1a14},
		{"web", "registry.example:5000/shop/web:1.2.3", 0xd629b10a},
		{"web", "registry.example/web@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0x27aef999},
		{"foo", "busybox<&>\"é\u2028%!s", 0x94428e42},
	} {
		c := &v1.Container{Name: tc.name, Image: tc.image}
		assert.Equal(t, tc.want, runtime.ContainerHash(c), "%s %s", tc.name, tc.image)
		c.Command, c.Env = []string{"x"}, []v1.EnvVar{{Name: "A", Value: "1"}}
		assert.Equal(t, tc.want, runtime.ContainerHash(c), "no other field counts")
	}
}
