//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// A pod can have a million variables from config maps. The time to make a container of it is in
// proportion to their number.
func TestManyVariables(t *testing.T) {
	const many = 300_000
	env := environment{at: map[string]int{}}
	took := testenv.CPUTime(t, func() {
		for range 2 {
			for i := range many {
				env.set(fmt.Sprint("V", i), "1")
			}
		}
	})
	assert.Less(t, took, 10*time.Second, "a quadratic cost takes minutes")
	assert.Len(t, env.list, many)
	env.set("V1", "2")
	env.set("V2=3", "4")
	assert.Equal(t, []string{"V0=1", "V1=2", "V2=3=4", "V3=1"}, env.list[:4])
}

// A descriptor that the server has inherited, say of /etc/shadow from a shell, must not
// reach a container, nor a command that is executed in it.
func TestInheritedDescriptors(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	fd, err := unix.Open(secret, unix.O_RDONLY, 0) // without O_CLOEXEC, as what is inherited
	require.NoError(t, err)
	defer unix.Close(fd)
	n := startNode(t, Options{})
	p := n.pod()
	look := "ls -l /proc/self/fd"
	id := p.run(shell("c", look+"; echo up; sleep 1000"))
	p.says("c", "up")
	assert.NotContains(t, p.log("c"), secret)
	resp, err := n.rs.ExecSync(context.Background(), &criv1.ExecSyncRequest{ContainerId: id,
		Cmd: []string{"sh", "-c", look}})
	require.NoError(t, err)
	assert.Contains(t, string(resp.GetStdout()), "/proc/")
	assert.NotContains(t, string(resp.GetStdout()), secret)
	assert.NotContains(t, supervisorFiles(t, n.state(id).Supervisor.PID), secret)
}

func supervisorFiles(t *testing.T, pid int) string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var all strings.Builder
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join(dir, e.Name()))
		all.WriteString(target + "\n")
	}
	return all.String()
}

// Group 0 of the host can read what belongs to root.
func TestUnknownUserIsNotInGroupRoot(t *testing.T) {
	root := &hostFacts{}
	u, _, _, err := resolveUser(&criv1.LinuxContainerSecurityContext{RunAsUser: &criv1.Int64Value{Value: 4012345678}},
		root)
	require.NoError(t, err)
	assert.EqualValues(t, 65534, u.GID)
	assert.NotContains(t, u.Groups, uint32(0))
	u, _, _, err = resolveUser(&criv1.LinuxContainerSecurityContext{
		RunAsUser: &criv1.Int64Value{Value: 4012345678}, RunAsGroup: &criv1.Int64Value{Value: 0},
	}, root)
	require.NoError(t, err)
	assert.EqualValues(t, 0, u.GID, "it is requested")
}

// What a container puts in the place of its log must neither be followed nor block.
func TestLogThatIsNoFile(t *testing.T) {
	n := startNode(t, Options{})
	for name, plant := range map[string]func(path string) error{
		"fifo":    func(path string) error { return unix.Mkfifo(path, 0o666) },
		"symlink": func(path string) error { return os.Symlink(filepath.Join(n.opts.Dir, "victim"), path) },
		"socket":  func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			p := n.pod()
			id, err := p.create(shell("c", "sleep 1000"))
			require.NoError(t, err)
			path := filepath.Join(p.config.GetLogDirectory(), "c.log")
			require.NoError(t, plant(path))
			_, err = n.rs.StartContainer(context.Background(), &criv1.StartContainerRequest{ContainerId: id})
			require.ErrorContains(t, err, "opening its log")

			other := p.run(shell("d", "sleep 1000"))
			path = filepath.Join(p.config.GetLogDirectory(), "d.log")
			require.NoError(t, os.Rename(path, path+".1"))
			require.NoError(t, plant(path))
			_, err = n.rs.ReopenContainerLog(context.Background(), &criv1.ReopenContainerLogRequest{ContainerId: other})
			require.ErrorContains(t, err, "reopening its log")
			_, err = n.rs.RemovePodSandbox(context.Background(), &criv1.RemovePodSandboxRequest{PodSandboxId: p.id})
			require.NoError(t, err)
		})
	}
	assert.NoFileExists(t, filepath.Join(n.opts.Dir, "victim"))
}

// Every local user can connect to the port of streams, and keep the connection.
func TestConnectionsWithoutStreams(t *testing.T) {
	n := startNode(t, Options{})
	address := n.server.streams.listener.Addr().String()
	var conns []net.Conn
	for range 3 * maxStreamConns {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
		conns = append(conns, c)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + "/exec/guessed") // it takes the place of one that waits
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
	open := 0
	for _, c := range conns {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			open++
		}
	}
	assert.LessOrEqual(t, open, maxStreamConns)
	assert.Equal(t, 16<<10, n.server.streams.http.MaxHeaderBytes, "a megabyte of headers takes tens of megabytes "+
		"when it is parsed")
}

// killed runs a container, ends the server, and kills the supervisor.
func killed(n *node, p *pod) (id string, rec containerRecord) {
	n.t.Helper()
	id = p.run(shell("c", "exec sleep 1000"))
	require.NoError(n.t, readRecord(n.opts.Dir, id, &rec))
	state := n.state(id)
	n.stop()
	require.NoError(n.t, state.Supervisor.Kill(unix.SIGKILL))
	eventually(n.t, func() bool { return !state.Supervisor.Alive() && !alive(state.Command.PID) }, "it lives")
	// The lock may outlive the supervisor for a moment. A server that finds it held searches for processes; no
	// reboot leaves one.
	eventually(n.t, func() bool {
		lock, err := supervise.Lock(filepath.Join(n.opts.Dir, "containers", id))
		if err == nil {
			safefile.Unlock(lock)
		}
		return err == nil
	}, "the lock is held")
	return id, rec
}

// sleeper starts a process that has nothing to do with the server but a variable of its
// environment.
func sleeper(ctx context.Context, variable string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, "sleep", "1000")
	cmd.Env = []string{variable}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, cmd.Start()
}

// The ID of a container is in the list of processes and in the names of cgroups, where every
// user can read it. A process with the ID in its environment is not taken for one of the
// container.
func TestProcessesWithTheIDOfAContainer(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{NoCgroups: true})
	id, _ := killed(n, n.pod())
	other, err := sleeper(t.Context(), supervise.Mark(id))
	require.NoError(t, err)
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	n.start()
	assert.EqualValues(t, 255, n.exited(id).GetExitCode())
	assert.True(t, alive(other.Process.Pid))
}

// A process of a container may not end, as while a file system does not answer. The server
// starts all the same, with the containers of all other pods.
func TestRecoveryDoesNotWaitForProcesses(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{NoCgroups: true})
	id, _ := killed(n, n.pod())
	var endless atomic.Bool
	endless.Store(true)
	n.startWith(func(s *Server) {
		s.huntPatience = time.Millisecond
		s.pass = func(hunt *supervise.Hunt) bool { return hunt.Pass() && !endless.Load() }
	})
	assert.Equal(t, criv1.ContainerState_CONTAINER_RUNNING, n.status(id).GetState(), "something of it runs")
	n.pod().run(shell("c", "exec sleep 1000"))
	endless.Store(false)
	assert.EqualValues(t, 255, n.exited(id).GetExitCode())
}

// No process survives a reboot, so none is looked for.
func TestNoProcessSurvivesAReboot(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{NoCgroups: true})
	p := n.pod()
	id, rec := killed(n, p)
	file := filepath.Join(n.opts.Dir, "sandboxes", p.id+".json")
	var box sandboxRecord
	require.NoError(t, supervise.ReadFile(file, &box))
	box.Boot = "another"
	require.NoError(t, supervise.WriteFile(file, &box))
	other, err := sleeper(t.Context(), supervise.MarkOf(rec.Spec, id))
	require.NoError(t, err)
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	n.start()
	assert.EqualValues(t, 255, n.exited(id).GetExitCode())
	assert.True(t, alive(other.Process.Pid))
}

// A supervisor that is stopped, or waits for the disk, answers nothing. Clients that attach must
// not keep the server from its end.
func TestAttachToAStoppedSupervisor(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before", "afterwards"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			n := startNode(t, Options{})
			p := n.pod()
			id := p.run(shell("c", "while :; do echo up; sleep 0.01; done"))
			p.says("c", "up")
			state := n.state(id)
			stop := func() { require.NoError(t, state.Supervisor.Kill(unix.SIGSTOP)) }
			defer func() { require.NoError(t, state.Supervisor.Kill(unix.SIGCONT)) }()
			if when == "before" {
				stop()
			}
			ctx, gone := context.WithCancel(t.Context())
			defer gone()
			out, done := &signalled{first: make(chan struct{})}, make(chan error, 1)
			go func() { done <- n.server.attachStream(ctx, id, runtime.Streams{Stdout: out}) }()
			if when == "afterwards" {
				<-out.first
				stop()
			}
			select {
			case err := <-done:
				require.NoError(t, err, "it ends early")
			case <-time.After(100 * time.Millisecond): // it waits
			}
			gone()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				require.Fail(t, "it does not end with its client")
			}
		})
	}
}

// signalled closes first with the first output.
type signalled struct {
	once  sync.Once
	first chan struct{}
}

func (s *signalled) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.first) })
	return len(b), nil
}
func (*signalled) Close() error { return nil }

// A container can have a chain of as many processes as the machine. Its usage is read every few
// seconds.
func TestUsageOfAChainOfProcesses(t *testing.T) {
	const n = 100_000
	c := &container{}
	out, owners := map[*container]*usage{c: {}}, map[int]*container{2: c}
	all := []supervise.Stat{{PID: 2, PPID: 1}}
	for pid := 3; pid < n+3; pid++ {
		all = append(all, supervise.Stat{PID: pid, PPID: pid - 1, UTime: 1})
	}
	all = append(all, supervise.Stat{PID: n + 4, PPID: n + 5}, supervise.Stat{PID: n + 5, PPID: n + 4}) // a loop
	assert.Less(t, testenv.CPUTime(t, func() { attribute(all, owners, out) }), 5*time.Second)
	assert.EqualValues(t, n, out[c].processes)
	assert.Equal(t, n*tick, out[c].cpu)
}

// A server that is killed while it writes the images leaves a file each time.
func TestInterruptedWriteOfImages(t *testing.T) {
	t.Parallel()
	n := startNode(t, Options{})
	n.stop()
	left := filepath.Join(n.opts.Dir, ".images.json.123")
	require.NoError(t, os.WriteFile(left, []byte("{"), 0o600))
	n.start()
	assert.NoFileExists(t, left)
}

// In a directory of others, records of processes could be planted, which the server ends.
func TestDirectoryOfOthers(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	for _, dir := range []string{dir, filepath.Join(dir, "below")} {
		s, err := newServer(Options{Dir: dir})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // otherwise it would serve for ever
		require.ErrorContains(t, s.open(ctx), "has mode 0777 and can be written by every user")
		cancel()
	}
	assert.NoDirExists(t, filepath.Join(dir, "below"))
	assert.NoDirExists(t, filepath.Join(dir, "containers"))
}
