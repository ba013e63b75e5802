package cpus_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
)

func TestHasAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), cpus.CheckpointName)
	m := newManager(t, "xeon-2n", path, &setter{}, cpus.Options{})
	p, other := guaranteed("p", 2), burstable("other")
	assert.False(t, m.HasAll(p, &p.Spec.Containers[0]))
	assert.True(t, m.HasAll(other, &other.Spec.Containers[0]))
	allocate(t, m, p)
	require.NoError(t, prepare(t, m, p))
	m = newManager(t, "xeon-2n", path, &setter{}, cpus.Options{})
	assert.True(t, m.HasAll(p, &p.Spec.Containers[0]), "of an earlier agent")
	more := guaranteed("p", 3)
	assert.False(t, m.HasAll(more, &more.Spec.Containers[0]))
	m.Refused(p)
	assert.False(t, m.HasAll(p, &p.Spec.Containers[0]))
}
