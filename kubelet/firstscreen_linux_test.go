package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
)

// An agent that starts as in the README says little: a table follows.
func TestFirstScreen(t *testing.T) {
	root, err := os.MkdirTemp("", "mk") // short, for the sockets in it
	require.NoError(t, err)
	defer func() { assert.NoError(t, os.RemoveAll(root)) }()
	manifests, log := filepath.Join(root, "manifests"), filepath.Join(root, "log")
	require.NoError(t, os.CopyFS(manifests, os.DirFS(exampleManifests)))
	configFile := filepath.Join(root, "config.yaml")
	write(t, configFile, fmt.Sprintf("%spodLogsDir: %s/logs\nstaticPodPath: %s\nhealthzPort: %d\n"+
		"evictionHard: {memory.available: 1Mi}\n", header, root, manifests, freePort(t))) // however full the machine is

	stderr := os.Stderr
	os.Stderr, err = os.Create(log)
	require.NoError(t, err)
	defer func() { assert.NoError(t, os.Stderr.Close()); os.Stderr = stderr }()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- runKubelet(ctx, []string{"--config", configFile, "--container-runtime-endpoint=embedded",
			"--root-dir", root, "--hostname-override=node",
			"--show=none"})
	}()
	require.Eventually(t, func() bool {
		var out strings.Builder
		return client.Run(t.Context(), []string{"--root-dir", root, "pods"}, client.Env{Out: &out, Err: &out}) == nil &&
			strings.Count(out.String(), "Running") == 2
	}, time.Minute, 20*time.Millisecond)
	said, err := os.ReadFile(log)
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(string(said)) {
		// the probe may come too early
		ofAPod := strings.Contains(line, "reason=Unhealthy")
		// it may lack what these watch
		ofTheMachine := strings.Contains(line, "lack of memory are not watched, since") ||
			strings.Contains(line, "signals about memory are missing")
		if !ofAPod && !ofTheMachine {
			lines = append(lines, line)
		}
	}
	if assert.Len(t, lines, 2, string(said)) {
		assert.Contains(t, lines[0], "Containers are processes of this machine")
		assert.Contains(t, lines[1], "Agent starts")
	}

	require.NoError(t, os.RemoveAll(manifests))
	require.NoError(t, os.Mkdir(manifests, 0o700))
	require.Eventually(t, func() bool {
		left, err := os.ReadDir(filepath.Join(root, "process", "containers"))
		return err == nil && len(left) == 0
	}, time.Minute, 20*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}
