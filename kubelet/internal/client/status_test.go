package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

func TestStatusWithoutAnAgent(t *testing.T) {
	root := t.TempDir()
	run := func(args ...string) (string, error) {
		var out strings.Builder
		err := runCommand(t.Context(), append([]string{"status", "--root-dir", root}, args...), &out, &out)
		return out.String(), err
	}
	out, err := run()
	require.ErrorIs(t, err, ExitCode(3))
	assert.Contains(t, out, "The agent does not run: no agent answers on "+filepath.Join(root, config.SocketName))
	out, err = run("-o", "json")
	require.ErrorIs(t, err, ExitCode(3))
	assert.Contains(t, out, `"running": false`)

	if os.Geteuid() == 0 {
		return // root reaches every socket
	}
	require.NoError(t, os.Chmod(root, 0))
	t.Cleanup(func() { _ = os.Chmod(root, 0o700) })
	_, err = run()
	failure := (*Failure)(nil)
	require.ErrorAs(t, err, &failure)
	assert.Equal(t, 4, failure.Code)
}

func TestStatusOfAnAgentThatFails(t *testing.T) {
	var out strings.Builder
	err := runCommand(t.Context(), []string{"status", "--root-dir", answering(t, nil)}, &out, &out)
	require.ErrorIs(t, err, ExitCode(1))
	assert.Equal(t, "The agent does not answer: error from the agent: 404 page not found\n", out.String())
}
