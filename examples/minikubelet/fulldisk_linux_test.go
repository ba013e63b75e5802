package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/client"
)

// hog fills the disk when its postStart hook has run, and takes what others give back. A hook that finds
// a full disk may fail, and a container whose hook has failed is stopped.
const hog = `apiVersion: v1
kind: Pod
metadata: {name: hog, annotations: {process.kubeletkit.io/mounts: env}}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: c
    image: host
    command: [sh, -c, "trap 'exit 0' TERM; exec 2>/dev/null; until [ -e $MOUNT_DATA/go ]; do sleep 0.02; done; while :; do cat /dev/zero >> $MOUNT_DATA/zeros; sleep 0.02; done"]
    lifecycle: {postStart: {exec: {command: [sh, -c, "touch $MOUNT_DATA/go"]}}, preStop: {exec: {command: ["true"]}}}
    volumeMounts: [{name: data, mountPath: /data}, {name: conf, mountPath: /conf}]
  volumes: [{name: data, emptyDir: {}}, {name: conf, configMap: {name: conf}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {key: value}
`

const neighbour = `apiVersion: v1
kind: Pod
metadata: {name: neighbour}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - {name: c, image: host, command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.05; done"]}
`

// A pod that has filled the disk can be removed and stopped, with an agent, with another one that
// begins on the full disk, and without one. Other pods are removed meanwhile.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a file system of its own")
	}
	root, err := os.MkdirTemp("", "mk") // short, for the sockets in it
	require.NoError(t, err)
	defer func() { assert.NoError(t, os.RemoveAll(root)) }()
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer func() { assert.NoError(t, syscall.Unmount(root, syscall.MNT_DETACH)) }()
	manifests := t.TempDir()
	configFile := filepath.Join(t.TempDir(), "config.yaml")
	write(t, configFile, fmt.Sprintf("%spodLogsDir: %s/logs\nstaticPodPath: %s\nhealthzPort: 0\nfileCheckFrequency: 100ms\n", header, root, manifests))

	start := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			err := run(ctx, []string{"--config", configFile, "--root-dir", root, "--hostname-override=node", "--show=none"}, nil)
			if ctx.Err() == nil {
				t.Log("the agent has ended:", err)
			}
			done <- err
		}()
		return func() { cancel(); require.NoError(t, <-done) }
	}
	command := func(args ...string) string {
		var out strings.Builder
		args = append([]string{"--root-dir", root}, args...)
		if err := client.Run(t.Context(), args, client.Env{Out: &out, Err: &out, StopPods: func(ctx context.Context, rootDir, endpoint string) error {
			return stopPods(ctx, rootDir, endpoint, &out)
		}}); err != nil {
			return err.Error()
		}
		return out.String()
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		require.Eventually(t, ok, time.Minute, 20*time.Millisecond, what)
	}
	isFull := func() bool {
		var st syscall.Statfs_t
		require.NoError(t, syscall.Statfs(root, &st))
		return st.Bfree < 4
	}
	wanted := func(pods ...string) {
		for name, pod := range map[string]string{"hog": hog, "neighbour": neighbour} {
			path := filepath.Join(manifests, name+".yaml")
			if slices.Contains(pods, pod) {
				write(t, path, pod)
			} else {
				_ = os.Remove(path)
			}
		}
	}
	fills := func() {
		t.Helper()
		wanted(neighbour)
		eventually("the neighbour runs", func() bool { return strings.Contains(command("pods"), "1/1") })
		wanted(neighbour, hog)
		eventually("the disk is full", isFull)
	}
	nothingIsLeft := func() {
		t.Helper()
		eventually("nothing is left", func() bool {
			containers, err := os.ReadDir(filepath.Join(root, "process", "containers"))
			require.NoError(t, err)
			pods, err := os.ReadDir(filepath.Join(root, "pods"))
			require.NoError(t, err)
			return len(containers) == 0 && len(pods) == 0 && !isFull() && command("pods") == "No pods found.\n"
		})
	}

	// With the agent.
	stop := start()
	fills()
	wanted(hog)
	eventually("the neighbour is gone, while the disk is full", func() bool { return !strings.Contains(command("pods"), "neighbour") })
	wanted()
	nothingIsLeft()

	// With another one, while the pods are desired and while they are not.
	fills()
	stop()
	require.True(t, isFull())
	stop = start()
	eventually("both pods are known", func() bool { return strings.Count(command("pods"), "1/1") == 2 })
	stop()
	wanted()
	stop = start()
	nothingIsLeft()

	// Drained.
	fills()
	assert.Contains(t, command("stop"), "All pods have ended.\nThe agent has exited.\n")
	stop()

	// Without an agent.
	wanted()
	stop = start()
	nothingIsLeft()
	fills()
	stop()
	assert.Equal(t, "No agent runs. 2 pods are ending: default/hog-node, default/neighbour-node\nAll pods have ended.\n", command("stop"))
	wanted()
	stop = start()
	nothingIsLeft()
	stop()
}
