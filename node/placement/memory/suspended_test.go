package memory

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// While the state does not fit, what runs goes on, nothing is given, and the file stays as it is; until the pods in it
// have ended.
func TestSuspended(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	p, other, young := pod("p", nil, container("c", "memory", "1Gi")),
		pod("other", nil, container("c", "memory", "1Gi")), pod("young", nil, container("c", "memory", "1Gi"))
	m := newManager(t, path, 2, reserving(2))
	require.NoError(t, admit(m, p, numa.Hint{}))
	write(t, m, p)
	saved, err := os.ReadFile(path)
	require.NoError(t, err)
	root := t.TempDir()
	for _, uid := range []string{"p", "other"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "pods", uid), 0o700))
	}
	suspended := func() *Manager {
		opts := reserving(1) // another machine
		opts.ResetHint = "the flag is --so"
		m := newManager(t, path, 1, opts)
		require.NoError(t, m.Join(on{root: root}))
		return m
	}
	m = suspended()
	wrong := (*StateError)(nil)
	require.ErrorAs(t, m.Restore(), &wrong)
	assert.Equal(t, []types.UID{"p"}, wrong.Pods)
	for range 2 {
		refusal := (*runtime.TerminalError)(nil)
		require.ErrorAs(t, admit(m, young, numa.Hint{}), &refusal)
		assert.Equal(t, "UnexpectedAdmissionError", refusal.Reason)
		assert.Regexp(t, "the machine 1.*the flag is --so", refusal.Message)
	}
	assert.False(t, m.HasAll(young, &young.Spec.Containers[0]))
	for _, runs := range []*v1.Pod{p, other} {
		assert.True(t, m.HasAll(runs, &runs.Spec.Containers[0]), "no policy of package topology ends it")
		require.NoError(t, admit(m, runs, numa.Hint{}), "it runs already")
	}
	assert.Nil(t, m.Hints(p, nil))
	assert.Empty(t, start(t, m, p, "c"), "a container that is created again has all nodes")
	assert.Empty(t, m.Of("p", "c"))
	write(t, m, p)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(saved), string(data))

	require.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: p}))
	require.NoError(t, m.Restore(), "its pods have ended")
	require.NoError(t, admit(m, young, numa.Hint{}))
	assert.Equal(t, "0", start(t, m, young, "c"))
	assert.Empty(t, start(t, m, other, "c"), "it was admitted without memory of chosen nodes")

	opts := reserving(1)
	opts.ListPods = func() ([]*runtime.Pod, error) { return nil, nil }
	require.NoError(t, os.WriteFile(path, saved, 0o600))
	m = newManager(t, path, 1, opts)
	require.NoError(t, m.Join(on{root: root}))
	require.NoError(t, m.Restore(), "nothing of it runs")
	problem, dropped := m.State()
	require.ErrorAs(t, problem, &wrong)
	assert.True(t, dropped)
	require.NoError(t, admit(m, young, numa.Hint{}))
	write(t, m, young)
	data, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(data), "young")
	assert.NotEmpty(t, m.Of("young", "c"))
}

// A state that the disk does not return is not taken for one that does not fit: it is not replaced.
func TestUnreadableDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	require.NoError(t, os.Symlink(path, path))
	opts := reserving(1)
	opts.Reset = true
	m := newManager(t, path, 1, opts)
	require.ErrorIs(t, m.Restore(), syscall.ELOOP)
	require.ErrorIs(t, m.Join(on{}), syscall.ELOOP)
	require.ErrorContains(t, admit(m, pod("p", nil, container("c", "memory", "1Gi")), numa.Hint{}), "symbolic links")
	_, err := StaticLeft(path)
	require.ErrorIs(t, err, syscall.ELOOP)
	_, err = os.Lstat(path)
	require.NoError(t, err)
}
