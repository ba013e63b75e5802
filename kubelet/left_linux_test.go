package kubelet

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const podWithVolumes = `apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {k: geheim}
---
apiVersion: v1
kind: Pod
metadata: {name: p, annotations: {process.kubeletkit.io/mounts: env}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: host
    command: [sh, -c, "echo ready; exec sleep 1000"]
    resources: {limits: {memory: 64Mi}}
    volumeMounts: [{name: m, mountPath: /m}, {name: s, mountPath: /s}, {name: d, mountPath: /d}, {name: d, mountPath: /sub, subPath: a}]
  volumes: [{name: m, emptyDir: {medium: Memory}}, {name: s, secret: {secretName: s}}, {name: d, emptyDir: {}}]
`

// After stop, with an agent or without one, nothing of the pods is on the machine: no mount, cgroup, process, rule of
// iptables, namespace or file of a volume.
func TestStopLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts and cgroups")
	}
	for name, kill := range map[string]bool{"agent": false, "no agent": true} {
		t.Run(name, func(t *testing.T) {
			n := newEmbeddedNode(t, "")
			manifests, err := filepath.Glob(filepath.Join(n.manifests, "*"))
			require.NoError(t, err)
			for _, file := range manifests {
				require.NoError(t, os.Remove(file))
			}
			write(t, filepath.Join(n.manifests, "p.yaml"), podWithVolumes)
			before := leftOnMachine(t, n.root)
			agent := agentProcess(t, n)
			n.waitReady("p")
			assert.NotEqual(t, before, leftOnMachine(t, n.root), "the test sees what a pod has")
			if kill {
				require.NoError(t, agent.Process.Kill())
				_, _ = agent.Process.Wait()
			}
			out, err := n.command("stop")
			require.NoError(t, err)
			assert.Contains(t, out, "All pods have ended.")
			if !kill {
				require.NoError(t, agent.Wait())
			}
			assert.Equal(t, before, leftOnMachine(t, n.root))
			assert.NoError(t, filepath.WalkDir(n.root, func(path string, e fs.DirEntry, err error) error {
				assert.NotContains(t, path, "/volume", "a file of a volume")
				return err
			}))
		})
	}
}

// The root directory is deleted while pods run: stop finds them by the names of their cgroups.
func TestStopAfterTheRootDirectoryIsGone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: cgroups")
	}
	n := newEmbeddedNode(t, "")
	before := leftOnMachine(t, n.root)
	agent := agentProcess(t, n)
	n.waitReady("web", "dns")
	require.NoError(t, agent.Process.Kill())
	_, _ = agent.Process.Wait()
	for _, mount := range strings.Fields(leftOnMachine(t, n.root)["mounts"]) { // else they cannot be deleted
		require.NoError(t, syscall.Unmount(mount, 0))
	}
	require.NoError(t, os.RemoveAll(n.root))
	out, err := n.command("stop")
	require.NoError(t, err)
	assert.Equal(t, "No agent runs, and its root directory was deleted. The processes and cgroups of its pods are "+
		"gone (2).\n", out)
	assert.Equal(t, before, leftOnMachine(t, n.root))
	_, err = n.command("stop")
	require.ErrorContains(t, err, "no agent with the embedded runtime has run in")
}

// agentProcess starts the agent in a process of its own, which can be killed.
func agentProcess(t *testing.T, n *embeddedNode) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), agentEnv+"="+strings.Join(n.args, "\n"))
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// leftOnMachine returns what an agent makes outside of its directory, and what is mounted in it.
func leftOnMachine(t *testing.T, root string) map[string]string {
	t.Helper()
	left := map[string]string{}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	for line := range strings.Lines(string(mounts)) {
		if point := strings.Fields(line)[4]; strings.HasPrefix(point, root) {
			left["mounts"] += point + "\n"
		}
	}
	sum := sha256.Sum256([]byte(filepath.Join(root, "process")))
	owner := hex.EncodeToString(sum[:6]) // begins the names of the cgroups
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.Contains(path, owner) {
			left["cgroups"] += path + "\n"
		}
		return nil
	})
	deadline := time.Now().Add(time.Minute)
	for {
		left["processes"] = ""
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		require.NoError(t, err)
		for _, file := range all {
			if line, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(line),
				"kubeletkit-supervisor\x00"+root) {
				left["processes"] += file + "\n"
			}
		}
		if left["processes"] == "" || time.Now().After(deadline) || left["cgroups"] != "" {
			break // a supervisor ends right after its container
		}
		time.Sleep(5 * time.Millisecond)
	}
	for _, table := range []string{"/proc/self/net/ip_tables_names", "/proc/self/net/ip6_tables_names"} {
		data, _ := os.ReadFile(table)
		left["iptables"] += string(data)
	}
	return left
}
