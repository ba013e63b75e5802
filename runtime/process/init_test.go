//go:build linux

package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// A program that does not call Init gets no server. Nothing happens on import: the program
// reaches its main function also under the name of a supervisor.
func TestInitIsForgotten(t *testing.T) {
	for _, name := range []string{"program", supervise.Arg0} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Args = []string{name, t.TempDir()}
		cmd.Env = append(os.Environ(), noInitEnv+"=1")
		out, err := cmd.Output()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, name)
		assert.Equal(t, 7, exit.ExitCode(), name)
		assert.Equal(t, ErrNoInit.Error()+"\n", string(out), name)
	}
}

// The program calls Init, but not always.
func TestInitIsNotReached(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	id, err := p.create(shell("c", "true"))
	require.NoError(t, err)
	file := filepath.Join(n.opts.Dir, "containers", id, noInitEnv)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: id})
	require.ErrorContains(t, err, "its main function must call process.Init first")
	assert.ErrorContains(t, err, "(wait status 0x700): no argument was expected")
	st := n.status(id)
	assert.Equal(t, criv1.ContainerState_CONTAINER_EXITED, st.GetState())
	assert.Equal(t, "StartError", st.GetReason())
	require.NoError(t, os.Remove(filepath.Join(n.opts.Dir, "containers", id, supervise.LockFile)),
		"its output was expected")
}

// The program is started under the name of a supervisor by hand.
func TestSupervisorByHand(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args = []string{supervise.Arg0, t.TempDir()}
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "only a server of runtime/process starts a program under the name "+
		"kubeletkit-supervisor")
}

// The supervisor can be another program than that of the server.
func TestSupervisorOfItsOwn(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "supervisor")
	if os.Link(self, program) != nil {
		data, err := os.ReadFile(self)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(program, data, 0o700))
	}
	n := startNode(t, Options{Supervisor: program})
	p := n.pod()
	id := p.run(shell("c", "sleep 1000"))
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", n.state(id).Supervisor.PID))
	require.NoError(t, err)
	assert.Equal(t, program, exe)

	n.stop()
	n.opts.Supervisor = filepath.Join(filepath.Dir(program), "missing")
	n.start()
	other, err := p.create(shell("d", "true"))
	require.NoError(t, err)
	_, err = n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: other})
	require.ErrorContains(t, err, "executing "+n.opts.Supervisor+" as a supervisor: no such file or directory")
}
