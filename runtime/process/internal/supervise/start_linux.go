package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/filelock"
)

// Lock locks the directory of a container or of a server. The error wraps
// [filelock.ErrLocked] if a supervisor, or another server, has locked it.
func Lock(dir string) (*os.File, error) { return filelock.Lock(filepath.Join(dir, LockFile)) }

// ready is what a supervisor says when its command runs, or could not.
type ready struct {
	State State  `json:"state"`
	Error string `json:"error,omitempty"`
}

// CommandError is why a command could not be executed. The container's [Exit] says
// the same.
type CommandError struct{ Message string }

func (e *CommandError) Error() string { return e.Message }

// Start starts the supervisor of the container in dir, whose [Spec] is there, and
// returns when its command runs. The supervisor is in a session of its own and does
// not end with the caller. It is the caller's child, see [Process.Reap]. The error is a *CommandError if
// the supervisor ran, and has ended because the command cannot run, and wraps [filelock.ErrLocked] if another one
// has the directory.
func Start(dir, title string) (State, error) {
	lock, err := Lock(dir)
	if err != nil {
		return State{}, err
	}
	defer lock.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return State{}, err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return State{}, errors.Join(err, w.Close())
	}
	defer null.Close()
	complaints, err := os.OpenFile(filepath.Join(dir, ErrorFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return State{}, errors.Join(err, w.Close())
	}
	defer complaints.Close()

	pid, err := syscall.ForkExec("/proc/self/exe", []string{Arg0, dir, title}, &syscall.ProcAttr{
		Dir: dir,
		// One thread for Go code, since a supervisor does little and there are many. With this
		// GOGC the first collection comes at 2 MB: a start stays below, which saves a third of its page
		// faults, and much of its memory. In a program that was built with -race a process waits for a second at
		// its end, lest another thread has a race to report; that would hold up the end of each container.
		Env:   []string{"GOMAXPROCS=1", "GOGC=50", "GORACE=atexit_sleep_ms=0"},
		Files: []uintptr{null.Fd(), null.Fd(), complaints.Fd(), lock.Fd(), w.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	_ = w.Close()
	if err != nil {
		return State{}, fmt.Errorf("executing this program as a supervisor: %w", err)
	}
	data, err := io.ReadAll(r)
	var said ready
	if err == nil {
		err = json.Unmarshal(data, &said)
	}
	if err != nil {
		// It has died, and its death is all there is to wait for.
		var ws unix.WaitStatus
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, &ws, 0, nil)
		words, _ := os.ReadFile(complaints.Name())
		return State{}, fmt.Errorf("the supervisor has ended before its command ran (wait status %#x): %s", uint32(ws), words[:min(len(words), 1024)])
	}
	if said.Error != "" {
		_, _ = unix.Wait4(pid, nil, 0, nil)
		return State{}, &CommandError{said.Error}
	}
	return said.State, nil
}
