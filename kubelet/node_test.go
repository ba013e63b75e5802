package kubelet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/local"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake/criserver"
)

// bench is an agent on a fake container runtime.
type bench struct {
	t                         *testing.T
	rt                        *fake.Runtime
	root, manifests, endpoint string
	cancel                    func()
	ended                     chan error
}

// newBench makes a bench whose agent does not run yet. Its runtime has containerd's event stream.
func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchOn(t, fake.Options{Events: fake.Containerd()})
}

// newBenchOn makes a bench on a runtime with the options.
func newBenchOn(t *testing.T, opts fake.Options) *bench {
	t.Helper()
	root, err := os.MkdirTemp("", "mk") // short, for the sockets in it
	require.NoError(t, err)
	b := &bench{t: t, rt: fake.New(opts), root: root, manifests: filepath.Join(root, "manifests")}
	require.NoError(t, os.Mkdir(b.manifests, 0o700))
	socket := filepath.Join(root, "cri.sock")
	b.endpoint = "unix://" + socket
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- criserver.Serve(ctx, b.rt, l) }()
	t.Cleanup(func() {
		b.stop()
		cancel()
		require.NoError(t, <-served)
		require.NoError(t, b.rt.Close())
		// A process that another test starts at the same moment has the files of the agent until it executes its
		// program.
		require.Eventually(t, func() bool { unmount(root); return os.RemoveAll(root) == nil }, time.Minute,
			10*time.Millisecond, root)
	})
	return b
}

// unmount takes down the mount of a root directory that an agent of root makes, if there is one.
func unmount(root string) { _ = exec.Command("umount", root).Run() }

// args writes the configuration, and returns the flags of the agent.
func (b *bench) args() []string {
	b.t.Helper()
	file := filepath.Join(b.root, "config.yaml")
	write(b.t, file, fmt.Sprintf("%spodLogsDir: %s/logs\nstaticPodPath: %s\nhealthzPort: 0\nfileCheckFrequency: "+
		"20ms\ncgroupRoot: /minikubelet-test\n", header, b.root, b.manifests))
	return append(ownDirs(b.root), "--config", file, "--root-dir", b.root, "--hostname-override=n", "--show=none",
		"--container-runtime-endpoint", b.endpoint)
}

// start starts the agent, with further flags.
func (b *bench) start(args ...string) {
	b.t.Helper()
	args = append(b.args(), args...)
	ctx, cancel := context.WithCancel(b.t.Context())
	b.cancel, b.ended = cancel, make(chan error, 1)
	go func() { b.ended <- runKubelet(ctx, args) }()
}

// stop stops the agent if it runs.
func (b *bench) stop() {
	b.t.Helper()
	if b.cancel != nil {
		b.cancel()
		require.NoError(b.t, <-b.ended)
		b.cancel = nil
	}
}

// put writes the manifest of a pod with a container "c".
func (b *bench) put(name, image string) {
	b.t.Helper()
	fresh := filepath.Join(b.root, "fresh")
	write(b.t, fresh, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n  - "+
		"{name: c, image: %s}\n", name, image))
	require.NoError(b.t, os.Rename(fresh, filepath.Join(b.manifests, name+".yaml")))
}

func (b *bench) remove(name string) {
	b.t.Helper()
	require.NoError(b.t, os.Remove(filepath.Join(b.manifests, name+".yaml")))
}

// command returns the output of a command, with single spaces, or its error.
func (b *bench) command(args ...string) string {
	b.t.Helper()
	var out strings.Builder
	args = append([]string{"--root-dir", b.root}, args...)
	env := client.Env{Out: &out, Err: &out, StopPods: func(ctx context.Context, rootDir, endpoint string) error {
		return stopPods(ctx, rootDir, endpoint, &out)
	}}
	if err := client.Run(b.t.Context(), args, env); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// await waits until the output of a command has the text.
func (b *bench) await(text string, args ...string) {
	b.t.Helper()
	var got string
	require.Eventually(b.t, func() bool {
		got = b.command(args...)
		return strings.Contains(got, text)
	}, time.Minute, 10*time.Millisecond, "%s: %s", args, text)
}

// A sandbox that cannot be made is explained.
func TestDescribeShowsWhyAPodDoesNotStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	remove := b.rt.Inject(fake.Fault{Call: "RunPodSandbox", Err: errors.New("no CNI configuration")})
	b.put("web", "i")
	b.start()
	b.await("FailedCreatePodSandBox", "describe", "web")
	assert.Contains(t, b.command("describe", "web"), "Failed to create pod sandbox: no CNI configuration")
	assert.Contains(t, b.command("pods"), "web-n 0/1")
	remove()
	b.await("Normal Started", "describe", "web")
}

// Until it is forgotten, a pod that is removed can be seen, and its log read. Its
// status of its successor says what the successor waits for.
func TestAPodThatEndsAndItsSuccessor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	old := fake.Target{Pod: "web-n", Image: "old"}
	b.rt.Script(old, fake.Behavior{Output: "old words", IgnoresStop: true})
	b.put("web", "old")
	b.start()
	b.await("web-n 1/1 Running", "pods")
	_, first, _ := strings.Cut(b.command("describe", "web"), "UID: ")
	first, _, _ = strings.Cut(first, " ")

	b.put("web", "new")
	b.await("web-n 0/1 WaitingForPredecessor", "pods")
	assert.Contains(t, b.command("pods"), "web-n 1/1 Terminating")
	successor := b.command("describe", "web")
	assert.Contains(t, successor, "Not running: WaitingForPredecessor: starts when its predecessor of UID "+first+
		" has ended, which has been terminating for")
	assert.Contains(t, b.command("logs", "web"),
		`container "c" in pod "web-n" is not available: WaitingForPredecessor: starts when`)
	assert.Equal(t, "old words", b.command("logs", first))
	b.await("Killing", "describe", first) // it is to be stopped before that begins
	predecessor := b.command("describe", first)
	assert.Contains(t, predecessor, "Grace Period: 30s, ends ")
	assert.Contains(t, predecessor, "Status: Terminating")

	b.rt.Exit(old, 0)
	b.await("web-n 1/1 Running", "pods")
	b.await("Gone Since:", "describe", first)
	assert.Contains(t, b.command("describe", first), "Status: Completed Phase: Succeeded")
	assert.Equal(t, "old words", b.command("logs", first), "for log shippers and for this command")
	assert.Contains(t, b.command("exec", first, "--", "x"), "its containers were removed")
	assert.NotContains(t, b.command("describe", "web"), "predecessor")
	assert.Contains(t, b.command("describe", "web"), "- Pod starts when pod default/web-n("+first+
		"), which has the same name, has ended")

	// Without a successor the name still means it.
	b.remove("web")
	b.await("Gone Since:", "describe", "web")
	dirs, err := filepath.Glob(filepath.Join(b.root, "logs", "*_web-n_*"))
	require.NoError(t, err)
	require.Len(t, dirs, 2)
	for _, dir := range dirs {
		require.NoError(t, os.RemoveAll(dir))
	}
	assert.Contains(t, b.command("logs", "web"), "its containers and logs were removed")
	assert.Equal(t, "No pods found.", b.command("pods"))
}

// If the manifest of a pod comes back while the pod ends, its status says that it starts again. So
// does the status of the successor of a pod that an earlier agent has started.
func TestAPodThatStartsAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.rt.Script(fake.Target{Image: "old"}, fake.Behavior{IgnoresStop: true}, fake.Behavior{IgnoresStop: true},
		fake.Behavior{})
	b.put("web", "old")
	b.start()
	b.await("web-n 1/1 Running", "pods")
	b.remove("web")
	b.await("web-n 1/1 Terminating", "pods")
	b.put("web", "old")
	b.await("Message: starts again when it has ended", "describe", "web")
	b.rt.Exit(fake.Target{}, 0)
	b.await("web-n 1/1 Running", "pods")

	b.stop()
	b.put("web", "new")
	b.start()
	b.await("Not running: WaitingForPredecessor: starts when its predecessor of UID ", "describe", "web")
	b.rt.Exit(fake.Target{}, 0)
	b.await("web-n 1/1 Running", "pods")
}

func TestStopEndsThePodsAndTheAgent(t *testing.T) {
	b := newBench(t)
	slow := fake.Target{Pod: "slow-n"}
	b.rt.Script(slow, fake.Behavior{IgnoresStop: true})
	b.put("web", "i")
	b.put("slow", "i")
	b.start()
	b.await("slow-n 1/1 Running", "pods")
	b.await("web-n 1/1 Running", "pods")
	read, out := io.Pipe()
	stopped := make(chan error, 1)
	go func() {
		err := client.Run(t.Context(), []string{"stop", "--root-dir", b.root}, client.Env{Out: out})
		stopped <- errors.Join(err, out.Close())
	}()
	lines := bufio.NewScanner(read)
	require.True(t, lines.Scan())
	assert.Contains(t, lines.Text(), "default/slow-n")
	b.await("slow-n 1/1 Terminating", "pods")
	b.rt.Exit(slow, 0)
	var rest []string
	for lines.Scan() {
		rest = append(rest, lines.Text())
	}
	require.NoError(t, <-stopped)
	require.GreaterOrEqual(t, len(rest), 2)
	assert.Equal(t, []string{"All pods have ended.", "The agent has exited."}, rest[len(rest)-2:])
	require.NoError(t, <-b.ended)
	b.cancel = nil
	assert.Empty(t, b.rt.Running(fake.Target{}))

	// The manifests are still there.
	b.start()
	b.await("web-n 1/1 Running", "pods")
}

// A pod that the runtime cannot stop has not ended, and stop says why. The same holds for a pod that only an
// earlier agent has known.
func TestStopOfAPodThatCannotBeStopped(t *testing.T) {
	t.Parallel()
	for name, orphan := range map[string]bool{"desired": false, "orphan": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put("web", "i")
			b.start()
			b.await("web-n 1/1 Running", "pods")
			if orphan {
				b.stop()
				b.remove("web")
				// A pod that is restored before the manifests are read is no orphan: its sandbox is only removed.
				require.NoError(t, os.RemoveAll(filepath.Join(b.root, "podcheckpoint")))
			}
			mend := b.rt.Inject(fake.Fault{Call: "StopPodSandbox", Err: errors.New("no space\aleft"), Late: true})
			defer mend()
			if orphan {
				b.start()
				b.await("No pods found", "pods")
			}
			read, out := io.Pipe()
			stopped := make(chan error, 1)
			go func() {
				err := client.Run(t.Context(), []string{"stop", "--root-dir", b.root}, client.Env{Out: out})
				stopped <- errors.Join(err, out.Close())
			}()
			var said []string
			for lines := bufio.NewScanner(read); lines.Scan(); {
				if said = append(said, lines.Text()); strings.Contains(lines.Text(), "left") {
					mend()
				}
			}
			require.NoError(t, <-stopped)
			all := strings.Join(said, "\n")
			assert.Regexp(t, `1 pod is ending: default/web-n \(error killing pod: .*no space\\aleft.*\)\n`, all)
			assert.Contains(t, all, "All pods have ended.\nThe agent has exited.")
			require.NoError(t, <-b.ended)
			b.cancel = nil
		})
	}
}

func TestStopWithoutAnAgent(t *testing.T) {
	b := newBench(t)
	assert.Contains(t, b.command("stop"), "no agent with the embedded runtime has run in "+b.root)
	assert.Equal(t, "No agent runs, and no pods run.", b.command("stop", "--container-runtime-endpoint", b.endpoint))
	b.put("web", "i")
	b.start()
	b.await("web-n 1/1 Running", "pods")
	b.stop()
	require.Len(t, b.rt.Running(fake.Target{}), 1, "pods go on running")
	assert.Equal(t, "No agent runs. 1 pod is ending: default/web-n All pods have ended.", b.command("drain",
		"--container-runtime-endpoint", b.endpoint))
	assert.Empty(t, b.rt.Running(fake.Target{}))

	b.rt.Inject(fake.Fault{Call: "ListPodSandbox", Err: runtime.ErrUnavailable})
	assert.Contains(t, b.command("drain", "--container-runtime-endpoint", b.endpoint),
		"its container runtime does not answer either")
}

func TestFarewell(t *testing.T) {
	const root = "/var/lib/my agent"
	assert.Empty(t, farewell(local.Running{}, config.Program{}, root, ""))
	assert.Equal(t, "1 process of 1 pod goes on running; the next agent takes over. To end them: minikubelet stop "+
		"--root-dir '/var/lib/my agent'",
		farewell(local.Running{Pods: 1, Containers: 1}, config.Program{}, root, ""))
	assert.Equal(t, "3 containers of 2 pods go on running; the next agent takes over. To end them: minikubelet stop "+
		"--root-dir '/var/lib/my agent' --container-runtime-endpoint unix:///run/x.sock",
		farewell(local.Running{Pods: 2, Containers: 3}, config.Program{}, root, "unix:///run/x.sock"))
}

// Without an agent, commands ask the container runtime of the last one, be it named or not.
func TestCommandsWithoutAnAgentAskTheRuntimeOfTheLast(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	command := func(args ...string) string {
		var out strings.Builder
		env := client.Env{Out: &out, Err: &out,
			Left: func(ctx context.Context, rootDir, endpoint string) (http.Handler, string, error) {
				return left(ctx, config.Program{}, rootDir, endpoint)
			}}
		err := client.Run(t.Context(), append([]string{"--root-dir", b.root}, args...), env)
		assert.Equal(t, client.ExitCode(3), err)
		return strings.Join(strings.Fields(out.String()), " ")
	}
	b.put("web", "i")
	b.start()
	b.await("web-n 1/1 Running", "pods")
	b.stop()
	for _, args := range [][]string{{"pods"}, {"pods", "--container-runtime-endpoint", b.endpoint}} {
		text := command(args...)
		assert.Contains(t, text, "web-n 1/1 Running")
		assert.Contains(t, text, "1 container of 1 pod goes on running")
		assert.Contains(t, text, "--container-runtime-endpoint "+b.endpoint)
	}
	assert.Contains(t, command("status"), "1 container of 1 pod goes on running")
	assert.Contains(t, b.command("stop"), "give its --container-runtime-endpoint "+b.endpoint)

	defer b.rt.Inject(fake.Fault{Call: "ListPodSandbox", Err: runtime.ErrUnavailable})()
	text := command("pods")
	assert.Contains(t, text, "Its pods may go on running in the container runtime, which does not list them: ")
	assert.Contains(t, text, "NoAgent: no agent runs, and the container runtime does not say what runs")
}
