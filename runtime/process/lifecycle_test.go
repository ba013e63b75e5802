//go:build linux

package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

func TestLifecycle(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	config := shell("main", `echo out; echo err >&2; echo "$GREETING in $PWD"; exit 7`)
	config.Envs = []*criv1.KeyValue{{Key: "GREETING", Value: []byte("hello")}}
	config.WorkingDir = "/tmp"
	id, err := p.create(config)
	require.NoError(t, err)
	assert.Equal(t, criv1.ContainerState_CONTAINER_CREATED, n.status(id).GetState())

	_, err = n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: id})
	require.NoError(t, err)
	st := n.exited(id)
	assert.EqualValues(t, 7, st.GetExitCode())
	assert.Equal(t, "Error", st.GetReason())
	assert.Positive(t, st.GetStartedAt())
	assert.GreaterOrEqual(t, st.GetFinishedAt(), st.GetStartedAt())

	var texts []string
	for line := range strings.Lines(p.log("main")) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		require.Len(t, parts, 4)
		_, err := time.Parse(time.RFC3339Nano, parts[0])
		require.NoError(t, err)
		assert.Equal(t, "F", parts[2])
		texts = append(texts, parts[1]+" "+parts[3])
	}
	assert.ElementsMatch(t, []string{"stdout out", "stderr err", "stdout hello in /tmp"}, texts)

	_, err = n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: id})
	assert.Equal(t, codes.FailedPrecondition, status.Code(err), err)
	for range 2 {
		n.kill(id, 1)
		_, err = n.rs.RemoveContainer(context.Background(), &criv1.RemoveContainerRequest{ContainerId: id})
		require.NoError(t, err)
		_, err = n.rs.StopPodSandbox(context.Background(), &criv1.StopPodSandboxRequest{PodSandboxId: p.id})
		require.NoError(t, err)
	}
	_, err = n.rs.ContainerStatus(context.Background(), &criv1.ContainerStatusRequest{ContainerId: id})
	assert.Equal(t, codes.NotFound, status.Code(err))
	for range 2 {
		_, err = n.rs.RemovePodSandbox(context.Background(), &criv1.RemovePodSandboxRequest{PodSandboxId: p.id})
		require.NoError(t, err)
	}
	_, err = n.rs.PodSandboxStatus(context.Background(), &criv1.PodSandboxStatusRequest{PodSandboxId: p.id})
	assert.Equal(t, codes.NotFound, status.Code(err))
	left, err := os.ReadDir(filepath.Join(n.opts.Dir, "containers"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestStartFailures(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	for name, test := range map[string]struct {
		change func(*criv1.ContainerConfig)
		want   string
	}{
		"missing":   {func(c *criv1.ContainerConfig) { c.Command = []string{"no-such-command"} }, `command "no-such-command" is not on this host`},
		"directory": {func(c *criv1.ContainerConfig) { c.WorkingDir = "/no/such/dir" }, "working directory"},
		"not-exec":  {func(c *criv1.ContainerConfig) { c.Command = []string{"/etc/passwd"} }, "permission denied"},
	} {
		config := shell(name, "true")
		test.change(config)
		id, err := p.create(config)
		require.NoError(t, err, name)
		_, err = n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: id})
		require.ErrorContains(t, err, test.want, name)
		st := n.status(id)
		assert.Equal(t, criv1.ContainerState_CONTAINER_EXITED, st.GetState(), name)
		assert.Equal(t, "StartError", st.GetReason(), name)
		assert.EqualValues(t, 128, st.GetExitCode(), name)
		assert.Contains(t, st.GetMessage(), test.want, name)
	}
	n.restart()
	for _, c := range n.list() {
		assert.Equal(t, "StartError", n.status(c.GetId()).GetReason())
	}
}

// A stop that cannot be recorded is a stop: the sandbox is not ready, and it can be removed. To the
// next server it is ready, and can be stopped again.
func TestStopThatCannotBeRecorded(t *testing.T) {
	n := startNode(t, Options{})
	stopped, removed := n.pod(), n.pod()
	stop := func(id string) {
		t.Helper()
		_, err := n.rs.StopPodSandbox(t.Context(), &criv1.StopPodSandboxRequest{PodSandboxId: id})
		assert.NoError(t, err)
	}
	state := func() criv1.PodSandboxState {
		resp, err := n.rs.PodSandboxStatus(t.Context(), &criv1.PodSandboxStatusRequest{PodSandboxId: stopped.id})
		require.NoError(t, err)
		return resp.Status.State
	}
	dir := filepath.Join(n.opts.Dir, "sandboxes")
	require.NoError(t, os.Rename(dir, dir+".away"))
	for range 2 {
		stop(stopped.id)
		assert.Equal(t, criv1.PodSandboxState_SANDBOX_NOTREADY, state())
	}
	_, err := n.rs.RemovePodSandbox(t.Context(), &criv1.RemovePodSandboxRequest{PodSandboxId: removed.id})
	assert.NoError(t, err)
	assert.Equal(t, 1, strings.Count(n.log.all(), "Cannot record that a sandbox is stopped"))
	require.NoError(t, os.Rename(dir+".away", dir))
	n.restart()
	assert.Equal(t, criv1.PodSandboxState_SANDBOX_READY, state())
	stop(stopped.id)
	n.restart()
	assert.Equal(t, criv1.PodSandboxState_SANDBOX_NOTREADY, state())
}

func (n *node) list() []*criv1.Container {
	resp, err := n.rs.ListContainers(context.Background(), &criv1.ListContainersRequest{})
	require.NoError(n.t, err)
	return resp.GetContainers()
}

func TestStop(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	const long = 100_000 // longer than the test may take
	for name, test := range map[string]struct {
		script  string
		timeout int64
		signal  criv1.Signal
		want    int32
	}{
		"polite":        {"trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done", long, 0, 3},
		"overflow":      {"trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done", 9_300_000_000, 0, 3},
		"by-default":    {"echo up; exec sleep 1000", long, 0, 128 + 15},
		"own-signal":    {"trap 'exit 4' USR1; trap '' TERM; echo up; while :; do sleep 0.01; done", long, criv1.Signal_SIGNAL_SIGUSR1, 4},
		"stubborn":      {"trap '' TERM; echo up; while :; do sleep 0.01; done", 1, 0, 128 + 9},
		"at-once":       {"trap '' TERM; echo up; while :; do sleep 0.01; done", 0, 0, 128 + 9},
		"real-time":     {"trap 'exit 5' RTMIN; echo up; while :; do sleep 0.01; done", long, criv1.Signal_SIGNAL_SIGRTMIN, 5},
		"whole-group":   {"sleep 1000 & trap 'exit 6' TERM; echo up; wait", long, 0, 6},
		"orphan-leaves": {"(trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000' &) ; trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done", long, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "real-time" {
				if sh, _ := os.Readlink("/bin/sh"); !strings.HasSuffix(sh, "dash") && !strings.HasSuffix(sh, "bash") {
					t.Skip("this shell knows no real-time signals")
				}
				test.script = strings.Replace(test.script, "RTMIN", "34", 1)
			}
			p := n.pod()
			config := shell("c", test.script)
			config.StopSignal = test.signal
			id := p.run(config)
			p.says("c", "up")
			state := n.state(id)
			n.kill(id, test.timeout)
			st := n.status(id)
			assert.Equal(t, criv1.ContainerState_CONTAINER_EXITED, st.GetState())
			assert.Equal(t, test.want, st.GetExitCode())
			n.nothingLeft(id, state)
		})
	}
}

// TestNoGrandchildSurvives has a process that has left its session, has no parent and
// ignores SIGTERM. It ends with the container, in whatever way that ends.
func TestNoGrandchildSurvives(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	for name, end := range map[string]string{"exit": "while [ ! -e %[1]s ]; do sleep 0.01; done; exit 0",
		"killed": "sleep 1000"} {
		p := n.pod()
		said := filepath.Join(t.TempDir(), "said")
		id := p.run(shell("c",
			fmt.Sprintf(`(setsid sh -c 'trap "" TERM HUP; echo stray $$; : > %[1]s; exec sleep 1000' &) ; `+end, said)))
		p.says("c", "stray ")
		state := n.state(id)
		line := p.log("c")
		pid, err := strconv.Atoi(strings.Fields(line[strings.Index(line, "stray ")+len("stray "):])[0])
		require.NoError(t, err)
		if name == "killed" {
			n.kill(id, 1)
		}
		n.exited(id)
		assert.False(t, alive(pid), name)
		n.nothingLeft(id, state)
	}
}

// TestForking stops processes that fork all the time and are replaced by their children, so
// that no list of them is right.
func TestForking(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	id := p.run(shell("c", `
		trap '' TERM
		chain() { chain & }
		i=0; while [ $i -lt 5 ]; do setsid sh -c 'trap "" TERM; chain() { chain & }; chain' & i=$((i+1)); done
		echo up
		i=0; while [ $i -lt 20 ]; do chain; i=$((i+1)); done
		while :; do sleep 1; done`))
	p.says("c", "up")
	state := n.state(id)
	n.kill(id, 1)
	n.nothingLeft(id, state)
}

// TestForkBomb fills up its limit of processes.
func TestForkBomb(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{PIDLimit: 200})
	p := n.pod()
	id, err := p.create(shell("c",
		`trap '' TERM; bomb() { while :; do bomb & done; }; bomb 2>/dev/null & echo up; while :; do :; done`))
	require.NoError(t, err)
	limits := n.limitsOf(id)
	if limits == "" {
		t.Skip("no pids cgroup can be made here")
	}
	_, err = n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: id})
	require.NoError(t, err)
	// A shell that cannot fork ends, so the number of processes may be below 200 again.
	eventually(t, func() bool {
		return refusedForks(limits) > 0
	}, "it does not reach its limit")
	state := n.state(id)
	n.kill(id, 1) // an error if it takes longer than supervisorPatience to kill it
	n.nothingLeft(id, state)
}

// refusedForks returns how often the limit of processes has kept the processes of a cgroup from forking. The
// limit is that of the pod, and kernels before 6.12 count where the process is.
func refusedForks(dir string) uint64 {
	return max(supervise.ReadKeyed(filepath.Join(dir, "pids.events"), "max"),
		supervise.ReadKeyed(filepath.Join(filepath.Dir(dir), "pids.events"), "max"))
}

// limitsOf is the cgroup in which the processes of a container are counted; "" for none.
func (n *node) limitsOf(id string) string {
	resp, err := n.rs.ContainerStatus(context.Background(),
		&criv1.ContainerStatusRequest{ContainerId: id, Verbose: true})
	require.NoError(n.t, err)
	if strings.Contains(fmt.Sprint(resp.GetInfo()), "limit of processes is not enforced") {
		return ""
	}
	var rec containerRecord
	require.NoError(n.t, readRecord(n.opts.Dir, id, &rec))
	if dir := rec.Cgroup.V1["pids"]; dir != "" {
		return dir
	}
	return rec.Cgroup.V2
}

func TestSignalOfCommand(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	id := p.run(shell("c", "kill -SEGV $$"))
	st := n.exited(id)
	assert.EqualValues(t, 128+int(unix.SIGSEGV), st.GetExitCode())
}

func TestStopCancelled(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	id := p.run(shell("c", "trap '' TERM; echo up; while :; do sleep 0.01; done"))
	p.says("c", "up")
	state := n.state(id)
	stop := func(timeout int64) {
		// A call that waits for ever, as these do, takes this long.
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err := n.rs.StopContainer(ctx, &criv1.StopContainerRequest{ContainerId: id, Timeout: timeout})
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		assert.Equal(t, criv1.ContainerState_CONTAINER_RUNNING, n.status(id).GetState())
	}
	stop(1000) // waits for the command
	require.NoError(t, state.Supervisor.Kill(unix.SIGSTOP))
	stop(1000) // waits for the supervisor
	stop(0)
	assert.True(t, state.Supervisor.Alive())
	require.NoError(t, state.Supervisor.Kill(unix.SIGCONT))
	n.kill(id, 0)
	assert.Equal(t, criv1.ContainerState_CONTAINER_EXITED, n.status(id).GetState())
}

func TestReasons(t *testing.T) {
	for _, c := range []struct {
		name   string
		exit   supervise.Exit
		reason string
	}{
		{"ends well", supervise.Exit{}, "Completed"},
		{"fails", supervise.Exit{Code: 3}, "Error"},
		{"killed", supervise.Exit{Code: 137, Signal: 9}, "Error"},
		{"killed for its memory", supervise.Exit{Code: 137, Signal: 9, OOM: true}, "OOMKilled"},
		{"a shell whose child was killed for its memory", supervise.Exit{Code: 137, OOM: true}, "OOMKilled"},
		{"ends well although a child was killed for its memory", supervise.Exit{OOM: true}, "Completed"},
		{"fails after a child was killed for its memory", supervise.Exit{Code: 1, OOM: true}, "Error"},
		{"supervisor lost", supervise.Exit{Code: 255, Lost: true}, "Unknown"},
		{"not started", supervise.Exit{Code: 128, Error: "no such file"}, "StartError"},
	} {
		t.Run(c.name, func(t *testing.T) {
			reason, _ := reasonOf(&c.exit)
			assert.Equal(t, c.reason, reason)
		})
	}
}
