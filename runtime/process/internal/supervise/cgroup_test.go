//go:build linux

package supervise

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A record that names a directory which is no cgroup must not have its processes killed.
func TestCgroupThatIsNone(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pids.max"), []byte("max"), 0o600))
	c := Cgroup{V2: dir, V1: map[string]string{"pids": dir}}
	assert.Zero(t, c.Kill())
	assert.Empty(t, c.Processes())
	require.NoError(t, c.Remove(t.Context()))
	assert.DirExists(t, dir)
	data, err := os.ReadFile(filepath.Join(dir, "pids.max"))
	require.NoError(t, err)
	assert.Equal(t, "max", string(data))
	p, err := ProcessOf(cmd.Process.Pid)
	require.NoError(t, err)
	assert.True(t, p.Alive())
}

// A supervisor reads no list of mounts: without cgroups of version 1 it enters nothing.
func TestEnterNothing(t *testing.T) {
	leave, err := Cgroup{V2: t.TempDir()}.enter(nil, true)
	require.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(100, func() { leave, _ = Cgroup{}.enter(nil, true) }))
	leave()
}
