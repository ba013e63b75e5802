package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func goarch() string { return runtime.GOARCH }

// process is a program in a network namespace whose output goes to a file.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has exited; err is set before
	err  error
}

// start starts the program in the namespace, in a process group of its own. It
// is killed should the test process die.
func start(ns *NetNS, logPath string, env []string, bin string, args ...string) (*process, error) {
	return startAs(0, ns, logPath, env, bin, args...)
}

// startAs is start as another user and its group, unless the user is 0.
func startAs(uid uint32, ns *NetNS, logPath string, env []string, bin string, args ...string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{cmd: ns.command(bin, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if uid != 0 {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	if err := ns.Do(p.cmd.Start); err != nil {
		return nil, fmt.Errorf("starting %s: %w", bin, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop sends the signal and waits for the end of the process.
func (p *process) stop(sig syscall.Signal, timeout time.Duration) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(timeout):
		p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not end within %v of %v", filepath.Base(p.cmd.Path), timeout, sig)
	}
}

// Eventually polls the condition until it returns nil, and fails the test with
// its last error when the timeout has passed.
func Eventually(t testing.TB, timeout time.Duration, what string, condition func() error) {
	t.Helper()
	if err := poll(timeout, condition); err != nil {
		t.Fatalf("%s: not within %v: %v", what, timeout, err)
	}
}

func poll(timeout time.Duration, condition func() error) error {
	deadline := time.Now().Add(timeout)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := condition()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

// processes returns the IDs of the processes that match.
func processes(match func(proc string) bool) []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && pid != os.Getpid() && match(dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ProcessesWith are the processes that have the text in their command lines.
func ProcessesWith(text string) []int {
	return processes(func(proc string) bool {
		cmdline, _ := os.ReadFile(proc + "/cmdline")
		return strings.Contains(string(cmdline), text)
	})
}

// killTasks kills the shims of a containerd by its address, and the processes of
// the containers by their IDs, which their control groups are named after. It
// is for what is left when the orderly way has failed.
func killTasks(address string, ids []string) {
	for _, pid := range processes(func(proc string) bool {
		cmdline, _ := os.ReadFile(proc + "/cmdline")
		return strings.Contains(string(cmdline), "containerd-shim") && strings.Contains(string(cmdline),
			"\x00"+address+"\x00")
	}) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, pid := range processes(func(proc string) bool {
		cgroup, _ := os.ReadFile(proc + "/cgroup")
		for _, id := range ids {
			if strings.Contains(string(cgroup), id) {
				return true
			}
		}
		return false
	}) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// unmountAll takes down what is mounted below the directory, the last first.
func unmountAll(dir string) {
	data, _ := os.ReadFile("/proc/self/mountinfo")
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if fields := strings.Fields(lines[i]); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			unix.Unmount(fields[4], unix.MNT_DETACH)
		}
	}
}

// tail returns the last lines of a file.
func tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// timeoutContext is the context of one call of the harness itself.
func timeoutContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*time.Minute)
}

// longTimeoutContext is the context of what the harness does to all pods.
func longTimeoutContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Minute)
}
