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

// The first line of describe names the failure for which the agent has stopped a container.
func TestFirstLineNamesTheFailure(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "mk") // short, for the sockets in it
	require.NoError(t, err)
	defer func() { assert.NoError(t, os.RemoveAll(root)) }()
	manifests := filepath.Join(root, "manifests")
	require.NoError(t, os.Mkdir(manifests, 0o700))
	put := func(name, fields string) {
		write(t, filepath.Join(manifests, name+".yaml"), fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: host, command: [sh, -c, "trap 'exit 143' TERM; sleep 100000 & wait"], %s}
`, name, fields))
	}
	put("hook", `lifecycle: {postStart: {exec: {command: [sh, -c, exit 127]}}}`)
	put("probe",
		`livenessProbe: {exec: {command: [sh, -c, "echo too old; exit 1"]}, periodSeconds: 1, failureThreshold: 1}`)
	configFile := filepath.Join(root, "config.yaml")
	write(t, configFile, fmt.Sprintf("%spodLogsDir: %s/logs\nstaticPodPath: %s\nhealthzPort: 0\n",
		header, root, manifests))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- runKubelet(ctx, []string{"--config", configFile, "--container-runtime-endpoint=embedded",
			"--root-dir", root, "--hostname-override=node",
			"--show=none",
			"--enable-server=false"})
	}()
	for pod, want := range map[string]string{
		"hook": ": it was stopped: its postStart hook has failed (exit code 127)", "probe": ": it was stopped: its liveness probe has failed (too old)",
	} {
		var first string
		require.Eventually(t, func() bool {
			var out strings.Builder
			_ = client.Run(t.Context(), []string{"--root-dir", root, "describe", pod},
				client.Env{Out: &out, Err: &strings.Builder{}})
			first, _, _ = strings.Cut(out.String(), "\n")
			return strings.Contains(first, want)
		}, time.Minute, 50*time.Millisecond, want)
		assert.Contains(t, first, "Not running: container c has ended with exit code ")
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
