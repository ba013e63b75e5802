package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

// embeddedNode is an agent with the embedded runtime in a directory of its own, and two pods: "web", and "dns"
// with a critical priority. When a pod receives its stop signal, it works for a moment, and then writes its name to the
// file "ends".
type embeddedNode struct {
	t                    *testing.T
	root, manifests, end string
	args                 []string
	done                 chan error
}

// newEmbeddedNode returns one that does not run. dir may be ""; then it is a temporary one.
func newEmbeddedNode(t *testing.T, settings string, args ...string) *embeddedNode {
	t.Helper()
	root, err := os.MkdirTemp("", "mk") // short, for the sockets in it
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(root)) })
	n := &embeddedNode{t: t, root: root, manifests: filepath.Join(root, "manifests"), end: filepath.Join(root, "ends")}
	require.NoError(t, os.Mkdir(n.manifests, 0o700))
	n.put("web", 0, "1")
	n.put("dns", 2_000_000_000, "0")
	file := filepath.Join(root, "config.yaml")
	write(t, file,
		fmt.Sprintf("%spodLogsDir: %s/logs\nstaticPodPath: %s\nhealthzPort: 0\nfileCheckFrequency: 100ms\n%s", header,
			root, n.manifests, settings))
	n.args = append([]string{"--config", file, "--container-runtime-endpoint=embedded",
		"--root-dir", root, "--hostname-override=node", "--show=none"}, args...)
	return n
}

// put writes the manifest of a pod that takes some seconds to end.
func (n *embeddedNode) put(name string, priority int32, seconds string) {
	n.t.Helper()
	fresh := filepath.Join(n.root, "fresh")
	write(n.t, fresh, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  priority: %d
  containers:
  - name: c
    image: host
    command: [sh, -c, "trap 'sleep %s; echo %s >> %s; exit 0' TERM; echo ready; while :; do sleep 0.05; done"]
`, name, priority, seconds, name, n.end))
	require.NoError(n.t, os.Rename(fresh, filepath.Join(n.manifests, name+".yaml")))
}

// start runs the agent until its context ends.
func (n *embeddedNode) start(ctx context.Context) {
	n.done = make(chan error, 1)
	go func() { n.done <- runKubelet(ctx, n.args) }()
}

// command runs a command against the agent, and returns what it prints.
func (n *embeddedNode) command(args ...string) (string, error) {
	var out strings.Builder
	env := client.Env{Out: &out, Err: &strings.Builder{}, StopPods: func(ctx context.Context, rootDir,
		endpoint string) error {
		return stopPods(ctx, rootDir, endpoint, &out)
	}}
	err := client.Run(n.t.Context(), append([]string{"--root-dir", n.root}, args...), env)
	return out.String(), err
}

// waitFor waits until the output of a command has the text.
func (n *embeddedNode) waitFor(text string, args ...string) {
	n.t.Helper()
	last := ""
	require.Eventually(n.t, func() bool {
		out, err := n.command(args...)
		last = fmt.Sprint(out, err)
		return strings.Contains(last, text)
	}, 2*time.Minute, 20*time.Millisecond, "%q in %v", text, args)
}

// waitReady waits until the traps of the pods are set.
func (n *embeddedNode) waitReady(pods ...string) {
	n.t.Helper()
	for _, pod := range pods {
		n.waitFor("ready", "logs", pod)
	}
}

// ends returns the names of the pods that have ended by themselves, in their order.
func (n *embeddedNode) ends() string {
	data, err := os.ReadFile(n.end)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(n.t, err)
	}
	return strings.Join(strings.Fields(string(data)), " ")
}

// With --drain-on-term SIGTERM ends the pods by priority, and then the agent; SIGINT leaves the pods.
func TestDrainOnTerm(t *testing.T) {
	for name, settings := range map[string]string{
		"without periods": "",
		"with periods":    "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 30}, {priority: 1000, shutdownGracePeriodSeconds: 30}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(t.TempDir(), "none"))
			n := newEmbeddedNode(t, settings, "--drain-on-term")
			ctx, cancel := context.WithCancelCause(t.Context())
			n.start(ctx)
			n.waitReady("web", "dns")
			cancel(errInterrupted)
			require.NoError(t, <-n.done)
			assert.Empty(t, n.ends())

			ctx, cancel = context.WithCancelCause(t.Context())
			n.start(ctx)
			n.waitFor("1/1", "pods")
			cancel(ErrTerminated)
			require.NoError(t, <-n.done)
			assert.Equal(t, "web dns", n.ends())
			out, err := n.command("stop")
			require.NoError(t, err)
			assert.Equal(t, "No agent runs, and no pods run.\n", out)
		})
	}
}

func TestDrainCommandByPriority(t *testing.T) {
	t.Parallel()
	n := newEmbeddedNode(t, "")
	_, err := n.command("drain", "--by-priority")
	assert.ErrorContains(t, err, "only a running agent knows the priorities")
	n.start(t.Context())
	n.waitReady("web", "dns")
	out, err := n.command("drain", "--by-priority")
	require.NoError(t, err)
	assert.Contains(t, out, "1 pod is ending: default/web-node\n")
	assert.Contains(t, out, "All pods have ended.\nThe agent has exited.\n")
	require.NoError(t, <-n.done)
	assert.Equal(t, "web dns", n.ends())
}

// A machine without D-Bus: the agent runs, and the settings have their place in its configuration.
func TestGracefulShutdownWithoutLogind(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(t.TempDir(), "none"))
	n := newEmbeddedNode(t, "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n")
	ctx, cancel := context.WithCancel(t.Context())
	n.start(ctx)
	n.waitReady("web", "dns")
	cancel()
	require.NoError(t, <-n.done)
	_, err := n.command("stop")
	require.NoError(t, err)

	s, err := program.Parse(n.args)
	require.NoError(t, err)
	effective, err := s.Effective(config.Detected{})
	require.NoError(t, err)
	assert.Equal(t, "30s", effective["shutdownGracePeriod"])
	assert.Empty(t, s.Warnings)
	var opts kubeletkit.Options
	require.NoError(t, addShutdown(&opts, s))
	assert.Len(t, opts.Join, 1)
	opts.Join = nil
	s.ShutdownGracePeriod.Duration = 0
	s.ShutdownGracePeriodCriticalPods.Duration = 0
	require.NoError(t, addShutdown(&opts, s))
	assert.Empty(t, opts.Join)
}

func TestSignals(t *testing.T) {
	for sig, want := range map[syscall.Signal]error{syscall.SIGTERM: ErrTerminated, syscall.SIGINT: errInterrupted} {
		ctx, stop := withSignals(t.Context())
		require.NoError(t, syscall.Kill(os.Getpid(), sig))
		<-ctx.Done()
		assert.Equal(t, want, context.Cause(ctx))
		stop()
	}
	ctx, stop := withSignals(t.Context())
	stop()
	<-ctx.Done()
}
