package memory

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func TestHasAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	m := newManager(t, path, 2, reserving(2))
	p := pod("p", []v1.Container{container("init", "memory", "2Gi")}, container("main", "memory", "1Gi"))
	burstable := pod("burstable", nil, v1.Container{Name: "main"})
	holds := func(p *v1.Pod) (out []bool) {
		for _, c := range podspec.Containers(&p.Spec) {
			out = append(out, m.HasAll(p, c))
		}
		return out
	}
	assert.Equal(t, []bool{true}, holds(burstable))
	assert.Equal(t, []bool{false, false}, holds(p))
	require.NoError(t, admit(m, p, numa.Hint{}))
	assert.Equal(t, []bool{true, true}, holds(p))
	start(t, m, p, "main")
	assert.Equal(t, []bool{true, true}, holds(p), "the init container has given it back")
	write(t, m, p)
	m = newManager(t, path, 2, reserving(2))
	assert.Equal(t, []bool{true, true}, holds(p))
	m.Refused(p)
	assert.Equal(t, []bool{false, false}, holds(p))
}
