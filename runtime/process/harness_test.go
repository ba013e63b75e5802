//go:build linux

package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// node is a server with its clients.
type node struct {
	t    testing.TB
	opts Options
	rs   criv1.RuntimeServiceClient
	is   criv1.ImageServiceClient
	conn *grpc.ClientConn
	stop func()
	log  *logLines
	pods atomic.Int64
	// server is the one that runs now.
	server *Server
}

type logLines struct{ lines chan string }

func (l *logLines) all() string {
	var b strings.Builder
	for {
		select {
		case line := <-l.lines:
			b.WriteString(line + "\n")
		default:
			return b.String()
		}
	}
}

// startNode runs a server until the test ends, and then removes its containers.
func startNode(t testing.TB, opts Options) *node {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	n := &node{t: t, opts: opts, log: &logLines{make(chan string, 10000)}}
	n.opts.Logger = logr.New(funcr.New(func(_, args string) {
		select {
		case n.log.lines <- args:
		default:
		}
	}, funcr.Options{Verbosity: 1}).GetSink())
	n.start()
	t.Cleanup(func() {
		n.clean()
		n.stop()
	})
	return n
}

func (n *node) start() {
	n.t.Helper()
	n.startWith(func(*Server) {})
}

// startWith starts a server that was changed.
func (n *node) startWith(change func(*Server)) {
	n.t.Helper()
	s, err := newServer(n.opts)
	require.NoError(n.t, err)
	change(s)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(n.t, s.open(ctx))
	n.dial()
	n.server = s
	stopped := false
	n.stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = n.conn.Close()
		require.NoError(n.t, s.Close())
	}
}

func (n *node) dial() {
	conn, err := grpc.NewClient("unix://"+filepath.Join(n.opts.Dir, "cri.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(n.t, err)
	n.conn, n.rs, n.is = conn, criv1.NewRuntimeServiceClient(conn), criv1.NewImageServiceClient(conn)
}

func (n *node) restart() {
	n.stop()
	n.start()
}

func (n *node) clean() {
	ctx := context.Background()
	// A supervisor has output if it panics, or if the race detector finds something.
	said, _ := filepath.Glob(filepath.Join(n.opts.Dir, "containers", "*", supervise.LockFile))
	for _, file := range said {
		words, _ := os.ReadFile(file)
		assert.Empty(n.t, string(words), file)
	}
	pods, err := n.rs.ListPodSandbox(ctx, &criv1.ListPodSandboxRequest{})
	if err != nil {
		return
	}
	for _, p := range pods.GetItems() {
		_, err := n.rs.RemovePodSandbox(ctx, &criv1.RemovePodSandboxRequest{PodSandboxId: p.GetId()})
		require.NoError(n.t, err)
	}
}

// pod is a sandbox with its configuration.
type pod struct {
	n      *node
	id     string
	config *criv1.PodSandboxConfig
}

func (n *node) pod() *pod { return n.podWith(func(*criv1.PodSandboxConfig) {}) }

// podWith returns a sandbox with a changed configuration.
func (n *node) podWith(change func(*criv1.PodSandboxConfig)) *pod {
	n.t.Helper()
	name := fmt.Sprintf("pod-%d", n.pods.Add(1))
	p := &pod{n: n, config: &criv1.PodSandboxConfig{
		Metadata:     &criv1.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		LogDirectory: filepath.Join(n.opts.Dir, "logs", name),
		Labels:       map[string]string{"io.kubernetes.pod.name": name},
	}}
	change(p.config)
	resp, err := n.rs.RunPodSandbox(context.Background(), &criv1.RunPodSandboxRequest{Config: p.config})
	require.NoError(n.t, err)
	p.id = resp.GetPodSandboxId()
	return p
}

// shell is the configuration of a container that runs a script.
func shell(name, script string) *criv1.ContainerConfig {
	return &criv1.ContainerConfig{
		Metadata: &criv1.ContainerMetadata{Name: name}, Image: &criv1.ImageSpec{Image: "host"},
		Command: []string{"sh", "-c"}, Args: []string{script}, LogPath: name + ".log",
		Linux: &criv1.LinuxContainerConfig{},
	}
}

func (p *pod) create(config *criv1.ContainerConfig) (string, error) {
	resp, err := p.n.rs.CreateContainer(context.Background(), &criv1.CreateContainerRequest{PodSandboxId: p.id,
		Config: config, SandboxConfig: p.config})
	return resp.GetContainerId(), err
}

func (p *pod) run(config *criv1.ContainerConfig) string {
	p.n.t.Helper()
	id, err := p.create(config)
	require.NoError(p.n.t, err)
	_, err = p.n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: id})
	require.NoError(p.n.t, err)
	return id
}

func (p *pod) log(name string) string {
	data, _ := os.ReadFile(filepath.Join(p.config.GetLogDirectory(), name+".log"))
	return string(data)
}

// says waits until the log of a container has the text.
func (p *pod) says(name, text string) {
	p.n.t.Helper()
	eventually(p.n.t, func() bool { return strings.Contains(p.log(name), text) }, "log of %s: no %q", name, text)
}

func (n *node) status(id string) *criv1.ContainerStatus {
	n.t.Helper()
	resp, err := n.rs.ContainerStatus(context.Background(), &criv1.ContainerStatusRequest{ContainerId: id})
	require.NoError(n.t, err)
	return resp.GetStatus()
}

// exited waits until a container has ended.
func (n *node) exited(id string) *criv1.ContainerStatus {
	n.t.Helper()
	eventually(n.t, func() bool { return n.status(id).GetState() == criv1.ContainerState_CONTAINER_EXITED },
		"container %s goes on", id)
	return n.status(id)
}

func (n *node) kill(id string, timeout int64) {
	n.t.Helper()
	_, err := n.rs.StopContainer(context.Background(), &criv1.StopContainerRequest{ContainerId: id, Timeout: timeout})
	require.NoError(n.t, err)
}

// state is the state that the supervisor of a container has recorded.
func (n *node) state(id string) supervise.State {
	n.t.Helper()
	var st supervise.State
	require.NoError(n.t, supervise.ReadFile(filepath.Join(n.opts.Dir, "containers", id, supervise.StateFile), &st))
	return st
}

// nothingLeft asserts that no process of the container is left.
func (n *node) nothingLeft(id string, st supervise.State) {
	n.t.Helper()
	require.Empty(n.t, supervise.Orphans(supervise.NewEnvirons(), supervise.Mark(id), st.Command),
		"processes of container %s", id)
	eventually(n.t, func() bool { return !st.Supervisor.Alive() }, "the supervisor of container %s stays", id)
}

// eventually polls, since a test cannot wait for a process that is not its child. It fails after
// a time that is far longer than the condition takes on a busy machine.
func eventually(t testing.TB, ok func() bool, format string, args ...any) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			require.Fail(t, fmt.Sprintf(format, args...))
		}
		time.Sleep(3 * time.Millisecond)
	}
}

// alive reports whether there is a process with the pid that has not ended.
func alive(pid int) bool {
	st, err := supervise.ReadStat(pid)
	return err == nil && st.State != 'Z' && unix.Kill(pid, 0) == nil
}

func readRecord(dir, id string, rec *containerRecord) error {
	return supervise.ReadFile(filepath.Join(dir, "containers", id, recordFile), rec)
}
