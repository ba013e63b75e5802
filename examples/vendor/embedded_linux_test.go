package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/kubelet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The program runs a pod with what an ordinary user has.
func TestProgramWithoutARuntime(t *testing.T) {
	dir, err := os.MkdirTemp("", "vendor") // short: it has a socket
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	manifests, out := filepath.Join(dir, "manifests"), filepath.Join(dir, "out")
	require.NoError(t, os.Mkdir(manifests, 0o700))
	manifest := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: once, namespace: default, labels: {team: a}}
spec:
  restartPolicy: Never
  containers: [{name: main, image: host, command: [/bin/sh, -c, 'echo up > %s']}]
`, out)
	require.NoError(t, os.WriteFile(filepath.Join(manifests, "once.yaml"), []byte(manifest), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		cmd := kubelet.Command(options())
		cmd.SetArgs([]string{"--root-dir", filepath.Join(dir, "root"), "--pod-manifest-path", manifests,
			"--healthz-port=0", "--enable-server=false", "--fail-swap-on=false", "--fail-cgroupv1=false"})
		done <- cmd.ExecuteContext(ctx)
	}()
	assert.Eventually(t, func() bool {
		data, err := os.ReadFile(out)
		return err == nil && string(data) == "up\n"
	}, time.Minute, 50*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}
