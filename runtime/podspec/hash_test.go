package podspec_test

import (
	"encoding/json"
	"hash/fnv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// The hashes are those of HashContainer in k8s.io/kubernetes v1.36.3 and v1.37.2,
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
		assert.Equal(t, tc.want, podspec.ContainerHash(c), "%s %s", tc.name, tc.image)
		c.Command, c.Env = []string{"x"}, []v1.EnvVar{{Name: "A", Value: "1"}}
		assert.Equal(t, tc.want, podspec.ContainerHash(c), "no other field counts")
	}
}

func TestContainerHashIsThatOfTheDump(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &v1.Container{Name: rapid.String().Draw(t, "name"), Image: rapid.String().Draw(t, "image")}
		picked, err := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
		require.NoError(t, err)
		h := fnv.New32a()
		_, _ = h.Write([]byte(dump.ForHash(picked)))
		assert.Equal(t, uint64(h.Sum32()), podspec.ContainerHash(c))
	})
}

func BenchmarkContainerHash(b *testing.B) {
	c := &v1.Container{Name: "web", Image: "registry.example:5000/shop/web:1.2.3"}
	b.ReportAllocs()
	for b.Loop() {
		podspec.ContainerHash(c)
	}
}
