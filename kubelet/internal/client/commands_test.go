package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/history/fake"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/recent"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// node is an agent with the pod web-n1, of which container "a" runs.
type node struct {
	log    string
	exec   func(cmd []string) (runtime.ExecResult, error)
	tar    func(ctx context.Context, out io.Writer) error // instead of the program, if it is not nil
	gone   []recent.Gone
	events map[types.UID][]runtime.Event
	ending func() []string

	images    *gc.ImagePreview
	collected control.Collected
	disk      []control.DiskItem
	held      []control.Holding
	stopped   []string
	stoppedBy string
	manifests string
	past      fake.History
}

func (n *node) Healthy() error              { return nil }
func (*node) Problems() []control.Problem   { return nil }
func (n *node) Holdings() []control.Holding { return n.held }
func (n *node) NodeName() string            { return "n1" }
func (n *node) Status() control.Status {
	return control.Status{NodeName: "n1", Manifests: n.manifests}
}

func (*node) NodeObject(context.Context) (*v1.Node, error) { return nil, errors.New("no node object") }

func (n *node) StopContainers(_ context.Context, uid types.UID, names []string, by string) error {
	n.stoppedBy = by
	n.stopped = append([]string{string(uid)}, names...)
	return nil
}
func (n *node) Gone() []recent.Gone { return n.gone }
func (n *node) Events(uid types.UID) (events []runtime.Event) {
	for _, e := range n.events[uid] {
		e.Pod.UID = uid
		events = append(events, e)
	}
	return events
}
func (n *node) AllEvents() []runtime.Event      { return append(n.events["u1"], n.events["later"]...) }
func (n *node) History() history.Store          { return &n.past }
func (n *node) Ending(context.Context) []string { return n.ending() }

func (n *node) Images(context.Context, gc.ImageGoal) (gc.ImagePreview, error) {
	if n.images == nil {
		return gc.ImagePreview{}, errors.New("this agent does not collect images")
	}
	return *n.images, nil
}

func (n *node) Disk(context.Context, gc.ImageGoal) control.Disk { return control.Disk{Items: n.disk} }

func (n *node) CollectImages(context.Context, gc.ImageGoal) control.Collected { return n.collected }

func (*node) WatchRuntimeStatus(types.UID) (<-chan struct{}, func()) { return nil, func() {} }
func (*node) Terminating() []*v1.Pod                                 { return nil }
func (*node) TranslateUID(uid types.UID) types.UID                   { return uid }
func (*node) Pods() []*v1.Pod                                        { return []*v1.Pod{web()} }
func (*node) Pod(uid types.UID) (*v1.Pod, bool)                      { return web(), uid == web().UID }

func web() *v1.Pod {
	running := podtest.Running("a", true)
	running.ContainerID = "t://1"
	pod := podtest.Pod(v1.PodRunning, running, podtest.Waiting("b", "CreateContainerError", "no such device"))
	pod.UID = "u1"
	return pod
}

func named(pod *v1.Pod, name string, uid types.UID) *v1.Pod {
	pod.Name, pod.UID = name, uid
	return pod
}

func (n *node) RuntimeStatus(types.UID) (*runtime.PodStatus, bool) {
	c := runtime.ContainerStatus{LogPath: n.log}
	c.Name, c.ID, c.State = "a", runtime.ContainerID{Type: "t", ID: "1"}, runtime.ContainerRunning
	return &runtime.PodStatus{
		Containers: []runtime.ContainerStatus{c}, Sandboxes: []runtime.SandboxStatus{{Sandbox: runtime.Sandbox{ID: "s",
			State: runtime.SandboxReady}}},
	}, true
}

func (n *node) Exec(_ context.Context, _ runtime.ContainerID, cmd []string,
	_ time.Duration) (runtime.ExecResult, error) {
	return n.exec(cmd)
}

func TestCommands(t *testing.T) {
	n := &node{log: filepath.Join(t.TempDir(), "0.log"), exec: func(cmd []string) (runtime.ExecResult, error) {
		switch cmd[0] {
		case "fail":
			return runtime.ExecResult{Output: []byte("failed\n"), ExitCode: 3}, nil
		case "absent": // the words of runc, by containerd
			return runtime.ExecResult{},
				errors.New(
					`OCI runtime exec failed: exec failed: unable to start container process: exec: "absent": executable file not found in $PATH: unknown`)
		case "denied":
			return runtime.ExecResult{},
				errors.New(
					`OCI runtime exec failed: exec failed: unable to start container process: exec: "/etc": permission denied: unknown`)
		case "none":
			return runtime.ExecResult{}, errors.New("no such program")
		}
		return runtime.ExecResult{Output: []byte(strings.Join(cmd, "|"))}, nil
	}}
	n.gone = []recent.Gone{
		{Pod: named(web(), "db-n1", "later"), At: time.Now().Add(-5 * time.Hour)}, {Pod: named(web(), "db-n1", "before"), At: time.Now().Add(-9 * time.Hour)},
	}
	n.events = map[types.UID][]runtime.Event{
		"u1": {{Type: "Normal", Reason: "Started"}}, "later": {{Type: "Normal", Reason: "Killing"}}, "before": {{Type: "Normal", Reason: "Failed"}},
	}
	web := runtime.PodRef{UID: "u1", Namespace: "default", Name: "web-n1"}
	n.past.Record(runtime.Record{Pod: web, Stage: runtime.StageDecided, Kind: runtime.KindStartContainer,
		Container: "a", Attempt: 1, Reason: "Exited", Message: "code 7"})
	n.past.Record(runtime.Record{Pod: web, Stage: runtime.StageSeen, Source: runtime.SourceEvent,
		Kind: runtime.KindContainerRunning, Container: "a"})
	n.past.Record(runtime.Record{Pod: runtime.PodRef{UID: "u9", Namespace: "default", Name: "old-n1"},
		Stage: runtime.StageDone, Kind: runtime.KindRemovePod})
	writeFile(t, n.log, "2026-01-02T03:04:05Z stdout F one\n2026-01-02T03:04:06Z stderr F two\n")
	root := serveNode(t, n)

	const note = "Container a is used; -c names another: b, setup, proxy.\n"
	for _, tt := range []struct {
		name        string
		args        []string
		out, errOut string // parts, "" for nothing
		err         string
	}{
		{"pods", []string{"pods"}, "web-n1", "\nPods that are not ready:\n  default/web-n1: Not running: container b waits: CreateContainerError: no such device\n", ""},
		{"pods of a namespace", []string{"pods", "-n", "other"}, "", "No pods found.\n", ""},
		{"one of the pods", []string{"pods", "pod/web", "-o", "name"}, "pod/web-n1\n", "", ""},
		{"pods with an unknown name", []string{"pods", "x"}, "", "", `there is no pod "x" in namespace "default"`},
		{"describe as kubectl", []string{"describe", "pod", "web", "-n", "x"}, "", "", `there is no pod "web" in namespace "x"; use -n default`},
		{"describe", []string{"describe", "web"}, "QoS", "", ""},
		{"describe nothing", []string{"describe"}, "", "", "want the name of one pod"},
		{"history", []string{"history", "web"}, "Container a is to be started again, restart 1: it exited with code 7", "", ""},
		{"history of a pod of an earlier agent", []string{"history", "old"}, "The pod is gone", "", ""},
		{"describe a pod of an earlier agent", []string{"describe", "old"}, "not on the node", "", ""},
		{"history of it by its full name", []string{"history", "old-n1"}, "The pod is gone", "", ""},
		{"history of nothing", []string{"history"}, "", "", "want the name of one pod"},
		{"history of an unknown pod", []string{"history", "dns"}, "", "", `there is no pod "dns" in namespace "default"; there are default/web-n1`},
		{"unknown pod", []string{"describe", "dns"}, "", "", `there is no pod "dns" in namespace "default"; there are default/web-n1`},
		{"logs of a pod that is gone", []string{"logs", "db"}, "", "", "pod default/db-n1 ended 5h ago, and its containers and logs were removed; minikubelet describe still shows"},
		{"logs", []string{"logs", "web"}, "one\ntwo\n", note, ""},
		{"logs, all flags", []string{"logs", "web-n1", "-c", "a", "--tail=1", "--timestamps", "-n", "default"}, "2026-01-02T03:04:06.000000000Z two\n", "", ""},
		{"logs of before", []string{"logs", "web", "-c", "a", "-p"}, "", "", `error from the agent: previous terminated container "a" in pod "web-n1" not found`},
		{"logs of an unknown container", []string{"logs", "web", "-c", "x"}, "", "", "it has a, b, setup, proxy"},
		{"logs of one that does not run", []string{"logs", "web", "-c", "b"}, "", "", `container "b" in pod "web-n1" is waiting to start: CreateContainerError: no such device`},
		{"exec", []string{"exec", "web", "-c", "a", "--", "echo", "-n", "a b"}, "echo|-n|a b", "", ""},
		{"exec that fails", []string{"exec", "web", "-c", "a", "--", "fail"}, "failed\n", "", "exit code 3"},
		{"exec of nothing", []string{"exec", "web", "-c", "a", "--", "none"}, "", "", "error from the agent: Internal error occurred: error executing command in container: no such program"},
		{"logs of all containers", []string{"logs", "web", "--all-containers", "--ignore-errors", "--tail=1"}, "two\n", "ERRORS", ""},
		{"logs of all containers and of one", []string{"logs", "web", "--all-containers", "-c", "a"}, "", "", "at most one of --container and --all-containers"},
		{"logs by a qualified name", []string{"logs", "default/web", "-c", "a", "--tail=1"}, "two\n", "", ""},
		{"exec by a type and a name", []string{"exec", "pod/web", "-c", "a", "--", "echo", "a"}, "echo|a", "", ""},
		{"describe in another namespace", []string{"describe", "web", "-n", "team-a"}, "", "", `there is no pod "web" in namespace "team-a"; use -n default`},
		{"exec without a dash", []string{"exec", "web", "ls"}, "", "", "want the name of one pod, --, and a command"},
		{"images of an agent without", []string{"images"}, "", "", "error from the agent: this agent does not collect images"},
		{"images with an argument", []string{"images", "x"}, "", "", `images: unexpected argument "x"`},
		{"gc with an argument", []string{"gc", "x"}, "", "", `gc: unexpected argument "x"`},
		{"gc without images", []string{"gc", "--dry-run"}, "", "", "error from the agent: this agent does not collect images"},
		{"unknown flag", []string{"pods", "--tail=1"}, "", "", "unknown flag: --tail; see minikubelet pods --help"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, errOut strings.Builder
			err := runCommand(t.Context(), append([]string{"--root-dir", root}, tt.args...), &out, &errOut)
			var again strings.Builder
			args := append([]string{tt.args[0], "--root-dir", root}, tt.args[1:]...)
			assert.Equal(t, err, runCommand(t.Context(), args, &again, &strings.Builder{}),
				"flags may be on both sides")
			assert.Equal(t, out.String(), again.String())
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.err)
			}
			switch {
			case tt.name == "describe" || tt.name == "pods":
				assert.Contains(t, out.String(), "web-n1")
			case tt.err == "" && (tt.args[0] == "history" || tt.args[len(tt.args)-1] == "old"):
				assert.Contains(t, out.String(), tt.out)
			default:
				assert.Equal(t, tt.out, out.String())
			}
			if tt.errOut == "ERRORS" { // of containers that do not run, and no note about a choice
				assert.NotContains(t, errOut.String(), "names another")
				return
			}
			assert.Equal(t, tt.errOut, errOut.String())
		})
	}
	var code ExitCode
	require.ErrorAs(t, runCommand(t.Context(), []string{"exec", "--root-dir", root, "web", "--", "fail"},
		&strings.Builder{}, &strings.Builder{}), &code)
	assert.Equal(t, ExitCode(3), code)
	for want, args := range map[int][]string{
		125: {"exec", "--root-dir", root, "nosuch", "--", "ls"},
		126: {"exec", "--root-dir", root, "web", "--", "denied"},
		127: {"exec", "--root-dir", root, "web", "--", "absent"},
	} {
		var failure *Failure
		require.ErrorAs(t, runCommand(t.Context(), args, &strings.Builder{}, &strings.Builder{}), &failure, args)
		assert.Equal(t, want, failure.Code, args)
	}

	// Events, also of a pod that is gone: the latest of the name, or that of the UID.
	for name, want := range map[string]string{"web": "Started", "u1": "Started", "db": "Killing", "before": "Failed"} {
		var out strings.Builder
		require.NoError(t, runCommand(t.Context(), []string{"--root-dir", root, "describe", name}, &out,
			&strings.Builder{}))
		assert.Contains(t, out.String(), want, name)
		assert.Equal(t, want != "Started", strings.Contains(out.String(), "Gone Since:"), name)
	}

	var described strings.Builder
	require.NoError(t, runCommand(t.Context(), []string{"--root-dir", root, "describe", "web"}, &described,
		&strings.Builder{}))
	assert.Contains(t, described.String(), "\nHistory:\n")
	assert.Contains(t, described.String(), "seen by event   Container a runs\n")

	// A history that is followed has what comes later.
	hctx, end := context.WithCancel(t.Context())
	followed := &stopper{after: "is stopped", stop: end}
	go func() {
		for range n.past.Watch(hctx, "") {
			n.past.Record(runtime.Record{Pod: web, Stage: runtime.StageDone, Kind: runtime.KindStopContainer,
				Container: "a"})
			return
		}
	}()
	require.NoError(t, runCommand(hctx, []string{"history", "--root-dir", root, "-f", "web"}, followed,
		&strings.Builder{}))
	assert.Contains(t, followed.String(), "done            Container a is stopped\n")

	// What is followed ends with a signal, and that is no error.
	lctx, stop := context.WithCancel(t.Context())
	out := &stopper{stop: stop}
	require.NoError(t, runCommand(lctx, []string{"logs", "--root-dir", root, "-f", "web"}, out, &strings.Builder{}))
	assert.Equal(t, "one\ntwo\n", out.String())
}

// stopper calls stop when something is written.
type stopper struct {
	strings.Builder
	after string // only when this was written
	stop  func()
}

func (s *stopper) WriteString(text string) (int, error) { return s.Write([]byte(text)) }

func (s *stopper) Write(p []byte) (int, error) {
	n, err := s.Builder.Write(p)
	if strings.Contains(s.String(), s.after) {
		s.stop()
	}
	return n, err
}

func TestCommandsWithoutAnAgent(t *testing.T) {
	root := t.TempDir()
	err := runCommand(t.Context(), []string{"pods", "--root-dir", root}, os.Stdout, os.Stderr)
	require.ErrorContains(t, err, "no agent answers on "+filepath.Join(root, config.SocketName))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// runCommand runs the command in the arguments of the program.
func runCommand(ctx context.Context, args []string, out, errOut io.Writer) error {
	return Run(ctx, args, Env{Out: out, Err: errOut,
		Agent: func(context.Context, []string) error { return fmt.Errorf("no command in %q", args) }})
}
