package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// Pods are at the root of the hierarchy, or without root beside the cgroup of the server, where that is delegated.
func TestDelegated(t *testing.T) {
	top := t.TempDir()
	mount := supervise.CgroupMount{Point: top, Root: "/"}
	const own = "/user.slice/agent.service/main"
	service := filepath.Join(top, filepath.Dir(own))
	require.NoError(t, os.MkdirAll(filepath.Join(top, own), 0o700))
	for _, root := range []bool{false, true} {
		assert.Empty(t, delegated(supervise.CgroupMount{}, own, root), "no hierarchy")
		assert.Empty(t, delegated(mount, own, root), "no file can be written")
	}
	for _, dir := range []string{top, service} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), nil, 0o600))
	}
	assert.Equal(t, filepath.Join(top, "kubeletkit"), delegated(mount, own, true))
	assert.Equal(t, filepath.Join(service, "kubeletkit"), delegated(mount, own, false))
	assert.Empty(t, delegated(mount, "/agent", false))
	assert.Empty(t, delegated(mount, "/", false))
	assert.Equal(t, filepath.Join(top, "kubeletkit"), delegated(mount, "/", true))

	// A kernel that has memory in a hierarchy of version 1 refuses the controller.
	control := filepath.Join(top, "cgroup.subtree_control")
	require.NoError(t, os.Remove(control))
	require.NoError(t, os.Mkdir(control, 0o700))
	assert.Empty(t, delegated(mount, own, true))
}
