package client

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/server"
)

// drainingAgent serves an agent that drains by the function when it is stopped, and then
// closes its socket.
func drainingAgent(t *testing.T, n *node, drain func(ctx context.Context) error) (root string) {
	t.Helper()
	root = t.TempDir()
	l, err := server.ListenUnix(t.Context(), filepath.Join(root, config.SocketName))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	stop := control.NewStop()
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l, control.Handler(n, stop, server.Options{})) }()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop.Run(ctx, drain)
		cancel()
	}()
	t.Cleanup(func() {
		cancel()
		<-stopped
		require.NoError(t, <-done)
	})
	return root
}

func TestStop(t *testing.T) {
	looked := make(chan int, 1)
	looked <- 0
	n := &node{ending: func() []string {
		times := <-looked
		looked <- times + 1
		if times < 2 {
			return []string{"default/b", "default/a"}
		}
		return []string{"default/a"}
	}}
	root := drainingAgent(t, n, func(ctx context.Context) error {
		for times := 0; times < 4; { // until both were shown
			times = <-looked
			looked <- times
		}
		return nil
	})
	var out strings.Builder
	require.NoError(t, runCommand(t.Context(), []string{"stop", "--root-dir", root}, &out, &strings.Builder{}))
	assert.Equal(t, "2 pods are ending: default/a, default/b\n1 pod is ending: default/a\nAll pods have ended.\nThe "+
		"agent has exited.\n", out.String())
	assert.NoFileExists(t, filepath.Join(root, config.SocketName))
}

func TestStopFails(t *testing.T) {
	n := &node{ending: func() []string { return nil }}
	root := drainingAgent(t, n, func(context.Context) error { return errors.New("2 pods still run") })
	var out strings.Builder
	err := runCommand(t.Context(), []string{"drain", "--root-dir", root}, &out, &strings.Builder{})
	require.EqualError(t, err, "the agent could not end all pods: 2 pods still run")
	assert.Empty(t, out.String())

	// A client that is interrupted does not interrupt the agent.
	ctx, interrupt := context.WithCancel(t.Context())
	draining, left := make(chan struct{}), make(chan struct{})
	n.ending = func() []string { interrupt(); return []string{"default/a"} }
	root = drainingAgent(t, n, func(ctx context.Context) error {
		close(draining)
		defer close(left)
		<-ctx.Done()
		return nil
	})
	err = runCommand(ctx, []string{"stop", "--root-dir", root}, &out, &strings.Builder{})
	require.EqualError(t, err, "interrupted; the agent goes on ending its pods, and exits then")
	<-draining
	select {
	case <-left:
		t.Error("the agent has given up")
	default:
	}
}

func TestStopWithoutAnAgent(t *testing.T) {
	root := t.TempDir()
	failed := errors.New("no pods")
	stop := func(args ...string) error {
		return Run(t.Context(), append([]string{"stop", "--root-dir", root}, args...),
			Env{Out: os.Stdout, Err: os.Stderr, StopPods: func(_ context.Context, dir, endpoint string) error {
				assert.Equal(t, root, dir)
				assert.Equal(t, strings.Join(args, ""), strings.TrimSuffix("--container-runtime-endpoint="+endpoint,
					"--container-runtime-endpoint="))
				return failed
			}})
	}
	require.ErrorIs(t, stop(), failed)
	require.ErrorIs(t, stop("--container-runtime-endpoint=unix:///x"), failed)
	require.ErrorContains(t, stop("now"), `stop: unexpected argument "now"`)
}

func TestEnding(t *testing.T) {
	assert.Equal(t, "1 pod is ending: a", Ending([]string{"a"}))
	assert.Equal(t, "6 pods are ending: a, b, c, d and 2 more", Ending([]string{"f", "e", "d", "c", "b", "a"}))
}
