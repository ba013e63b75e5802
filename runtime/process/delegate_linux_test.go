package process

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

func TestDelegated(t *testing.T) {
	top := t.TempDir()
	mount := supervise.CgroupMount{Point: top, Root: "/"}
	own := filepath.Join(top, "system.slice/agent.service")
	require.NoError(t, os.MkdirAll(own, 0o700))
	assert.Empty(t, delegated(supervise.CgroupMount{}, "/system.slice/agent.service"), "no hierarchy")
	assert.Empty(t, delegated(mount, "/system.slice/agent.service"), "no file can be written")
	for _, dir := range []string{top, own} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), nil, 0o600))
	}
	assert.Equal(t, filepath.Join(own, "kubeletkit"), delegated(mount, "/system.slice/agent.service"))
	assert.Equal(t, filepath.Join(own, "kubeletkit"), delegated(mount, "/system.slice/agent.service/kubeletkit-server"), "an earlier server has moved the process")

	// Where the controllers cannot be enabled in the own cgroup, the root of the hierarchy has the pods.
	require.NoError(t, os.Remove(filepath.Join(own, "cgroup.subtree_control")))
	require.NoError(t, os.Mkdir(filepath.Join(own, "cgroup.subtree_control"), 0o700))
	assert.Equal(t, filepath.Join(top, "kubeletkit"), delegated(mount, "/system.slice/agent.service"))
}

// Only a server that is alone in its cgroup moves: others there are not its own to leave, or to move.
func TestMoveServer(t *testing.T) {
	dir := t.TempDir()
	procs := filepath.Join(dir, "cgroup.procs")
	assert.False(t, moveServer(dir))
	self := strconv.Itoa(os.Getpid())
	for content, want := range map[string]bool{"": false, self + "\n": true, self + "\n1\n": false, "1\n": false} {
		require.NoError(t, os.WriteFile(procs, []byte(content), 0o600))
		require.NoError(t, os.RemoveAll(filepath.Join(dir, serverLeaf)))
		assert.Equal(t, want, moveServer(dir), "%q", content)
		moved, _ := os.ReadFile(filepath.Join(dir, serverLeaf, "cgroup.procs"))
		assert.Equal(t, want, string(moved) == "0", "%q", content)
	}
}
