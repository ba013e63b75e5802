package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// Lock locks the directory of a container. The error wraps [safefile.ErrLocked] if a supervisor has
// locked it.
func Lock(dir string) (*os.File, error) { return safefile.Lock(filepath.Join(dir, LockFile)) }

// ready is the output of a supervisor: its command runs, or cannot run.
type ready struct {
	State State  `json:"state"`
	Error string `json:"error,omitempty"`
}

// initTimeout is the time that the executed program may take to call [Init]. On an idle
// machine it takes about 10 ms.
const initTimeout = time.Minute

// maxOutput is the number of bytes of a supervisor's error output in an error.
const maxOutput = 1 << 10

var (
	errNotSupervisor = errors.New("this program was executed as a supervisor and did not become one; its main " +
		"function must call process.Init first, whatever its arguments are")
	errDied = errors.New("the supervisor has ended before its command ran")
)

// readReady reads the output of a supervisor, which ends when its command runs. It returns
// errNotSupervisor if the program ends or the timeout passes before the greeting.
func readReady(r *os.File, timeout time.Duration) (ready, error) {
	var said ready
	_ = r.SetReadDeadline(time.Now().Add(timeout))
	if _, err := io.ReadFull(r, make([]byte, len(greeting))); err != nil {
		return said, errNotSupervisor
	}
	_ = r.SetReadDeadline(time.Time{})
	data, err := io.ReadAll(r)
	if err == nil {
		err = json.Unmarshal(data, &said)
	}
	if err != nil {
		return said, errDied
	}
	return said, nil
}

// CommandError is the error of a command that cannot be executed. The container's [Exit]
// has the same message.
type CommandError struct{ Message string }

func (e *CommandError) Error() string { return e.Message }

// Start starts the supervisor of the container in dir, which has the record, and returns
// when its command runs. The supervisor has a session of its own and does not end with the
// caller. It is a child of the caller, see [Process.Reap]. program is the path of its program; "" is that of
// the caller.
//
// The error is a [*CommandError] if the supervisor has ended because the command cannot
// run, and wraps [safefile.ErrLocked] if the container has another supervisor. If ctx ends
// first, the error wraps that of ctx, and the supervisor continues: its files will show
// whether the command runs.
func Start(ctx context.Context, program, dir, title string) (State, error) {
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

	pid, err := syscall.ForkExec(cmp.Or(program, "/proc/self/exe"), []string{Arg0, dir, title}, &syscall.ProcAttr{
		Dir: dir,
		// One thread for Go code, since a supervisor does little and there are many. GOGC is
		// the default, so that the first collection is at 4 MB, which a start does not reach. A
		// program that was built with -race waits for a second before it ends, in case another
		// thread reports a race; that would delay the end of each container.
		Env:   []string{"GOMAXPROCS=1", "GORACE=atexit_sleep_ms=0"},
		Files: []uintptr{null.Fd(), null.Fd(), lock.Fd(), w.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	_ = w.Close()
	if err != nil {
		return State{}, fmt.Errorf("executing %s as a supervisor: %w", cmp.Or(program, "this program"), err)
	}
	stop := context.AfterFunc(ctx, func() { _ = r.Close() })
	defer stop()
	said, err := readReady(r, initTimeout)
	if err != nil && ctx.Err() != nil {
		return State{}, fmt.Errorf("waiting for the supervisor: %w", ctx.Err())
	}
	if err != nil {
		var ws unix.WaitStatus
		_ = unix.Kill(-pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, &ws, 0, nil)
		output := make([]byte, maxOutput)
		n, _ := lock.ReadAt(output, 0)
		return State{}, fmt.Errorf("%w (wait status %#x): %s", err, uint32(ws), output[:n])
	}
	if said.Error != "" {
		_, _ = unix.Wait4(pid, nil, 0, nil)
		return State{}, &CommandError{said.Error}
	}
	return said.State, nil
}
