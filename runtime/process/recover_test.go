//go:build linux

package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// serveElsewhere runs a server in a process of its own, to be killed.
func serveElsewhere(t *testing.T, dir string) (n *node, kill func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), serverEnv+"="+dir)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	n = &node{t: t, opts: Options{Dir: dir}}
	n.dial()
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			_ = n.conn.Close()
		}
	}
	t.Cleanup(kill)
	eventually(t, func() bool {
		_, err := n.rs.Version(context.Background(), &criv1.VersionRequest{})
		return err == nil
	}, "the server does not come up")
	return n, kill
}

// TestKilled kills a server with 20 containers and starts another one: no container was
// started again, and the exits in between are known.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n, kill := serveElsewhere(t, dir)
	stay, leave := map[string]supervise.State{}, map[string]int{}
	created, err := n.pod().create(shell("c", "true"))
	require.NoError(t, err)
	for i := range 20 {
		p := n.pod()
		if i%2 == 0 {
			id := p.run(shell("c", "echo up; exec sleep 1000"))
			stay[id] = n.state(id)
		} else {
			id := p.run(shell("c", fmt.Sprintf("while [ ! -e %s/go ]; do sleep 0.1; done; exit %d", dir, i)))
			leave[id] = i
		}
	}
	kill()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	for id := range leave {
		eventually(t, func() bool {
			_, err := os.Stat(filepath.Join(dir, "containers", id, supervise.ExitFile))
			return err == nil
		}, "no exit recorded")
	}

	n = startNode(t, Options{Dir: dir})
	assert.Len(t, n.list(), 21)
	assert.Equal(t, criv1.ContainerState_CONTAINER_CREATED, n.status(created).GetState())
	for id, before := range stay {
		st := n.status(id)
		assert.Equal(t, criv1.ContainerState_CONTAINER_RUNNING, st.GetState())
		assert.Equal(t, before.StartedAt.UnixNano(), st.GetStartedAt())
		assert.Equal(t, before, n.state(id))
		assert.True(t, before.Command.Alive())
	}
	for id, code := range leave {
		st := n.status(id)
		assert.Equal(t, criv1.ContainerState_CONTAINER_EXITED, st.GetState())
		assert.EqualValues(t, code, st.GetExitCode())
	}
	for id, before := range stay {
		n.kill(id, 5)
		assert.EqualValues(t, 128+15, n.status(id).GetExitCode())
		n.nothingLeft(id, before)
		break
	}
}

func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	for _, while := range []string{"serving", "away"} {
		t.Run(while, func(t *testing.T) {
			p := n.pod()
			id := p.run(shell("c", `(setsid sh -c 'trap "" TERM; sleep 1000' &) ; sleep 1000 & echo up; wait`))
			p.says("c", "up")
			state := n.state(id)
			if while == "away" {
				n.stop()
			}
			require.NoError(t, state.Supervisor.Kill(unix.SIGKILL))
			if while == "away" {
				eventually(t, func() bool { return !state.Supervisor.Alive() }, "the supervisor lives")
				n.start()
				p.n = n
			}
			st := n.exited(id)
			assert.EqualValues(t, 255, st.GetExitCode())
			assert.Equal(t, "Unknown", st.GetReason())
			assert.Contains(t, st.GetMessage(), "its supervisor was killed")
			n.nothingLeft(id, state)
			n.restart()
			assert.EqualValues(t, 255, n.status(id).GetExitCode())
		})
	}
}

// TestSupervisorKilledWhileForking kills the supervisor of chains of processes, each of which
// ends when it has forked the next one: when a list of processes is read, most of them have
// ended.
func TestSupervisorKilledWhileForking(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"cgroup", "none"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			n := startNode(t, Options{NoCgroups: where == "none"})
			p := n.pod()
			// All processes of the container have the one end open, so the other end shows
			// whether one of them lives.
			fifo := filepath.Join(n.opts.Dir, "fifo")
			require.NoError(t, unix.Mkfifo(fifo, 0o600))
			r, err := unix.Open(fifo, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			defer unix.Close(r)
			// Each counts first, so that init can reap them fast enough.
			const chain = `trap "" TERM HUP; chain() { i=0; while [ $i -lt 500 ]; do i=$((i+1)); done; chain & }; chain`
			id := p.run(shell("c", "exec 3>"+fifo+"; setsid sh -c '"+chain+"' & "+chain+"; echo up; sleep 1000"))
			p.says("c", "up")
			_, err = unix.Read(r, make([]byte, 1))
			require.ErrorIs(t, err, unix.EAGAIN, "some of it is there")
			state := n.state(id)
			require.NoError(t, state.Supervisor.Kill(unix.SIGKILL))
			st := n.exited(id)
			assert.Equal(t, "Unknown", st.GetReason())
			left, err := unix.Read(r, make([]byte, 1))
			assert.NoError(t, err, "some of it is still there")
			assert.Zero(t, left)
			n.nothingLeft(id, state)
		})
	}
}

// TestSupervisorSurvivesSignals sends those that a terminal or a service manager sends.
func TestSupervisorSurvivesSignals(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	id := p.run(shell("c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done"))
	p.says("c", "up")
	state := n.state(id)
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		require.NoError(t, state.Supervisor.Kill(sig))
	}
	st, err := supervise.ReadStat(state.Supervisor.PID)
	require.NoError(t, err)
	assert.Equal(t, state.Supervisor.PID, st.Session, "a session of its own")
	st, err = supervise.ReadStat(state.Command.PID)
	require.NoError(t, err)
	assert.Equal(t, state.Command.PID, st.Session, "a session of its own")
	assert.Equal(t, criv1.ContainerState_CONTAINER_RUNNING, n.status(id).GetState())
	require.NoError(t, state.Supervisor.Kill(unix.SIGTERM)) // passed on
	assert.EqualValues(t, 9, n.exited(id).GetExitCode())
}

// TestReusedPID has a state file with the pid of another process.
func TestReusedPID(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	id := p.run(shell("c", "exec sleep 1000"))
	state := n.state(id)
	n.stop()
	require.NoError(t, state.Supervisor.Kill(unix.SIGKILL))
	eventually(t, func() bool { return !state.Supervisor.Alive() && !alive(state.Command.PID) }, "it lives")

	other := exec.Command("sleep", "1000")
	require.NoError(t, other.Start())
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	state.Supervisor.PID, state.Command.PID = other.Process.Pid, other.Process.Pid
	require.NoError(t, supervise.WriteFile(filepath.Join(n.opts.Dir, "containers", id, supervise.StateFile), state))
	n.start()
	assert.EqualValues(t, 255, n.exited(id).GetExitCode())
	n.kill(id, 0)
	n.clean()
	assert.True(t, alive(other.Process.Pid), "a process of another program was killed")
}

// TestDamagedState has files that are torn, or that do not belong there.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p, q := n.pod(), n.pod()
	torn := p.run(shell("torn", "exec sleep 1000"))
	good := p.run(shell("good", "exec sleep 1000"))
	inTornPod := q.run(shell("c", "exec sleep 1000"))
	exited := p.run(shell("exited", "exit 3"))
	n.exited(exited)
	_, err := n.is.PullImage(context.Background(), &criv1.PullImageRequest{Image: &criv1.ImageSpec{Image: "a"}})
	require.NoError(t, err)
	states := map[string]supervise.State{torn: n.state(torn), inTornPod: n.state(inTornPod)}
	n.stop()

	dir := n.opts.Dir
	halve := func(path string) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data[:len(data)/2], 0o600))
	}
	halve(filepath.Join(dir, "containers", torn, recordFile))
	halve(filepath.Join(dir, "containers", exited, supervise.ExitFile))
	halve(filepath.Join(dir, "sandboxes", q.id+".json"))
	halve(filepath.Join(dir, "images.json"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sandboxes", "README"), []byte("hello"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "containers", "x"), []byte("hello"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "containers", strings.Repeat("a", 64)), 0o700))

	// As earlier versions have set them aside, with secrets in them.
	old := []string{"containers/" + strings.Repeat("b", 64) + ".bad", "sandboxes/" + strings.Repeat("b", 64) +
		".json.bad", "images.json.bad"}
	require.NoError(t, os.Mkdir(filepath.Join(dir, old[0]), 0o700))
	for _, file := range []string{old[0] + "/spec.json", old[1], old[2]} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte("secret"), 0o600))
	}

	n.start()
	log := n.log.all()
	for _, file := range []string{
		"containers/" + torn, "containers/" + inTornPod, "sandboxes/" + q.id + ".json", "images.json",
	} {
		assert.NoFileExists(t, filepath.Join(dir, file))
		assert.NoDirExists(t, filepath.Join(dir, file))
		assert.Contains(t, log, filepath.Join(dir, file))
	}
	for _, file := range old {
		_, err := os.Stat(filepath.Join(dir, file))
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
	for _, file := range []string{"sandboxes/README", "containers/x"} {
		assert.FileExists(t, filepath.Join(dir, file))
		assert.Contains(t, log, filepath.Join(dir, file))
	}
	assert.NoDirExists(t, filepath.Join(dir, "containers", strings.Repeat("a", 64)))
	assert.Len(t, n.list(), 2)
	assert.Equal(t, criv1.ContainerState_CONTAINER_RUNNING, n.status(good).GetState())
	assert.EqualValues(t, 255, n.status(exited).GetExitCode())
	for id, st := range states {
		n.nothingLeft(id, st)
	}
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		assert.NotContains(t, path, badSuffix, "nothing else would remove it, and it may have secrets in it")
		return err
	}))
	n.restart()
	assert.NotContains(t, n.log.all(), "damaged", "once is enough")
}

func TestInUse(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	_, err := Open(context.Background(), Options{Dir: n.opts.Dir})
	require.ErrorIs(t, err, ErrInUse)
	info, err := os.Stat(strings.TrimPrefix(n.server.Endpoint(), "unix://"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestAnotherBoot(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	id := p.run(shell("c", "exit 0"))
	n.exited(id)
	n.stop()
	file := filepath.Join(n.opts.Dir, "sandboxes", p.id+".json")
	var rec sandboxRecord
	require.NoError(t, supervise.ReadFile(file, &rec))
	rec.Boot = "another"
	require.NoError(t, supervise.WriteFile(file, &rec))
	n.start()
	resp, err := n.rs.PodSandboxStatus(context.Background(), &criv1.PodSandboxStatusRequest{PodSandboxId: p.id})
	require.NoError(t, err)
	assert.Equal(t, criv1.PodSandboxState_SANDBOX_NOTREADY, resp.GetStatus().GetState())
}

// TestRecoveryCutShort ends the life of a server that waits for containers of an earlier
// one. It returns at once, and leaves everything to the next server.
func TestRecoveryCutShort(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	starting, err := p.create(shell("starting", "true"))
	require.NoError(t, err)
	torn := p.run(shell("torn", "exec sleep 1000"))
	state := n.state(torn)
	n.stop()
	// One has a supervisor that does not write its state, the other one that hangs.
	dir := filepath.Join(n.opts.Dir, "containers")
	lock, err := supervise.Lock(filepath.Join(dir, starting))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, torn, recordFile), []byte("{"), 0o600))
	require.NoError(t, state.Supervisor.Kill(unix.SIGSTOP))

	s, err := newServer(n.opts)
	require.NoError(t, err)
	s.startPatience = 24 * time.Hour // a recovery that is not cut short does not end
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.open(ctx), context.DeadlineExceeded)
	assert.DirExists(t, filepath.Join(dir, torn), "not removed, since it may run")

	safefile.Unlock(lock)
	require.NoError(t, state.Supervisor.Kill(unix.SIGCONT))
	n.start()
	assert.NoDirExists(t, filepath.Join(dir, torn))
	n.nothingLeft(torn, state)
	assert.Equal(t, criv1.ContainerState_CONTAINER_CREATED, n.status(starting).GetState())
}

// TestStartCutShort ends the life of a server that waits for a supervisor, which hangs
// because its record does. The start continues, and the next server finds the container.
func TestStartCutShort(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	p := n.pod()
	id, err := p.create(shell("c", "echo up; exec sleep 1000"))
	require.NoError(t, err)
	record := filepath.Join(n.opts.Dir, "containers", id, recordFile)
	content, err := os.ReadFile(record)
	require.NoError(t, err)
	require.NoError(t, os.Remove(record))
	require.NoError(t, unix.Mkfifo(record, 0o600)) // its reader waits for a writer, and then for content
	started := make(chan error, 1)
	go func() {
		_, err := n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: id})
		started <- err
	}()
	var writer *os.File
	eventually(t, func() bool { // without a reader the pipe cannot be opened
		fd, err := unix.Open(record, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			writer = os.NewFile(uintptr(fd), record)
		}
		return err == nil
	}, "no supervisor reads the record")
	n.stop()
	require.Error(t, <-started)

	require.NoError(t, os.Remove(record))
	require.NoError(t, os.WriteFile(record, content, 0o600))
	_, err = writer.Write(content)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	n.start()
	p.n = n
	assert.Equal(t, criv1.ContainerState_CONTAINER_RUNNING, n.status(id).GetState())
	p.says("c", "stdout F up")
	state := n.state(id)
	n.kill(id, 0)
	n.nothingLeft(id, state)
}
