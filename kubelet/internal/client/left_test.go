package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/server"
)

func TestWithoutAnAgent(t *testing.T) {
	var out, errOut strings.Builder
	var failed error
	root := t.TempDir()
	run := func(args ...string) error {
		out.Reset()
		errOut.Reset()
		return Run(t.Context(), append([]string{"--root-dir", root}, args...), Env{Out: &out, Err: &errOut,
			Left: func(_ context.Context, dir, endpoint string) (http.Handler, string, error) {
				assert.Equal(t, root, dir)
				return control.Handler(&node{}, control.NewStop(), server.Options{}), "All of " + endpoint + " runs.",
					failed
			}})
	}
	require.ErrorIs(t, run("pods", "-o", "name", "--container-runtime-endpoint", "unix:///x"), ExitCode(3))
	assert.Equal(t, "pod/web-n1\n", out.String())
	assert.Contains(t, errOut.String(), "agent.sock. This is what it has left on the disk. All of unix:///x runs.\n")
	require.ErrorIs(t, run("describe", "web"), ExitCode(3))
	assert.Contains(t, out.String(), "web-n1")
	require.ErrorContains(t, run("logs", "web", "-c", "b"), "waiting to start")
	require.ErrorIs(t, run("status"), ExitCode(3))
	assert.Contains(t, out.String(), "All of runs.")

	for _, command := range []string{"pods -w", "logs -f web", "history -f web", "exec web -- ls", "top"} {
		require.ErrorIs(t, run(strings.Fields(command)...), control.ErrNoAgent, command)
	}
	failed = errors.New("nothing is left")
	require.ErrorIs(t, run("pods"), control.ErrNoAgent)
	assert.Empty(t, out.String())
}

// A handler that panics before it answers does not block the command.
func TestInProcessPanic(t *testing.T) {
	broken := inProcess{http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken") })}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://agent/", http.NoBody)
	require.NoError(t, err)
	resp, err := broken.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusInternalServerError, resp.StatusCode)
}
