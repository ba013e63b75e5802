package kubelet

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

	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
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

// smallDisk is a small file system with the root directory of an agent.
type smallDisk struct {
	*testing.T
	// root is the root directory, with the logs in it. manifests is elsewhere.
	root, manifests string
	configFile      string
}

// newSmallDisk mounts a file system of the size, as in "4m", until the test ends. settings are lines of the
// configuration of the agent.
func newSmallDisk(t *testing.T, size, settings string) *smallDisk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a file system of its own")
	}
	root, err := os.MkdirTemp("", "mk") // short, for the sockets in it
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(root)) })
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, "mode=700,size="+size); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(root, syscall.MNT_DETACH)) })
	d := &smallDisk{T: t, root: root, manifests: t.TempDir(), configFile: filepath.Join(t.TempDir(), "config.yaml")}
	write(t, d.configFile, fmt.Sprintf("%spodLogsDir: %s/logs\nstaticPodPath: %s\nhealthzPort: "+
		"0\nfileCheckFrequency: 100ms\n%s", header, root, d.manifests, settings))
	return d
}

// start starts an agent.
func (d *smallDisk) start() (stop func()) {
	ctx, cancel := context.WithCancel(d.Context())
	done := make(chan error, 1)
	go func() {
		err := runKubelet(ctx, []string{"--config", d.configFile, "--container-runtime-endpoint=embedded",
			"--root-dir", d.root, "--hostname-override=node",
			"--show=none"})
		if ctx.Err() == nil {
			d.Log("the agent has ended:", err)
		}
		done <- err
	}()
	return func() { cancel(); require.NoError(d, <-done) }
}

// command returns the output of a command, or its error.
func (d *smallDisk) command(args ...string) string {
	var out strings.Builder
	args = append([]string{"--root-dir", d.root}, args...)
	if err := client.Run(d.Context(), args,
		client.Env{Out: &out, Err: &out, StopPods: func(ctx context.Context, rootDir, endpoint string) error {
			return stopPods(ctx, rootDir, endpoint, &out)
		}}); err != nil {
		return err.Error()
	}
	return out.String()
}

func (d *smallDisk) eventually(what string, ok func() bool) {
	d.Helper()
	if !assert.Eventually(d, ok, time.Minute, 20*time.Millisecond, what) {
		d.Fatal(d.command("pods"), d.command("history"))
	}
}

// isFull reports whether the disk has no space.
func (d *smallDisk) isFull() bool {
	var st syscall.Statfs_t
	require.NoError(d, syscall.Statfs(d.root, &st))
	return st.Bfree < 4
}

// wanted makes these the pods of the node.
func (d *smallDisk) wanted(pods ...string) {
	for name, pod := range map[string]string{"hog": hog, "neighbour": neighbour} {
		path := filepath.Join(d.manifests, name+".yaml")
		if slices.Contains(pods, pod) {
			write(d.T, path, pod)
		} else {
			_ = os.Remove(path)
		}
	}
}

// fill runs two pods, the second of which fills the disk.
func (d *smallDisk) fill() {
	d.Helper()
	d.wanted(neighbour)
	d.eventually("the neighbour runs", func() bool { return strings.Contains(d.command("pods"), "1/1") })
	d.wanted(neighbour, hog)
	d.eventually("the disk is full", d.isFull)
}

func (d *smallDisk) nothingIsLeft() {
	d.Helper()
	d.eventually("nothing is left", func() bool {
		containers, err := os.ReadDir(filepath.Join(d.root, "process", "containers"))
		require.NoError(d, err)
		pods, err := os.ReadDir(filepath.Join(d.root, "pods"))
		require.NoError(d, err)
		return len(containers) == 0 && len(pods) == 0 && !d.isFull() && d.command("pods") == "No pods found.\n"
	})
}

// A pod that has filled the disk can be removed and stopped, with an agent, with another one that
// begins on the full disk, and without one. Other pods are removed meanwhile, and the next pods run.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	// Each returns with an agent that runs and the pods that are gone, or are to go.
	for name, end := range map[string]func(d *smallDisk, stop func()) (again func()){
		"with the agent": func(d *smallDisk, stop func()) func() {
			d.wanted(hog)
			d.eventually("the neighbour is gone, while the disk is full",
				func() bool { return !strings.Contains(d.command("pods"), "neighbour") })
			d.wanted()
			return stop
		},
		"with another agent": func(d *smallDisk, stop func()) func() {
			stop()
			require.True(d, d.isFull())
			stop = d.start() // while the pods are desired
			d.eventually("both pods are known", func() bool { return strings.Count(d.command("pods"), "1/1") == 2 })
			stop()
			d.wanted()
			return d.start()
		},
		"drained": func(d *smallDisk, stop func()) func() {
			assert.Contains(d, d.command("stop"), "All pods have ended.\nThe agent has exited.\n")
			stop()
			d.wanted()
			return d.start()
		},
		"without an agent": func(d *smallDisk, stop func()) func() {
			stop()
			assert.Equal(d, "No agent runs. 2 pods are ending: default/hog-node, default/neighbour-node\nAll pods "+
				"have ended.\n", d.command("stop"))
			d.wanted()
			return d.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newSmallDisk(t, "4m", "")
			stop := d.start()
			d.fill()
			stop = end(d, stop)
			d.nothingIsLeft()
			d.fill()
			assert.Contains(t, d.command("stop"), "All pods have ended.\n")
			stop()
		})
	}
}
