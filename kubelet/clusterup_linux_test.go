package kubelet

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A cluster cannot start without root, so the script refuses at once.
func TestClusterUpNeedsRoot(t *testing.T) {
	script, err := os.Open(filepath.Join("..", "examples", "minikubelet", "cluster", "up"))
	require.NoError(t, err)
	defer script.Close()
	dir := filepath.Join(t.TempDir(), "cluster")
	cmd := exec.CommandContext(t.Context(), "bash", "-s", dir)
	cmd.Stdin, cmd.Dir = script, "/"
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, "up: this needs root, for containers and their networks; run it with sudo\n", string(out))
	assert.NoDirExists(t, dir)
}
