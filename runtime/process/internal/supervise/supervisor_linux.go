package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

const (
	// killEvery is the time between two kills of the tree. After many, it is killSlowly.
	killEvery  = 2 * time.Millisecond
	killSlowly = 200 * time.Millisecond
	// drainTimeout is the time to wait for new output when the tree has ended. Only a process
	// outside of the tree can then hold the other end.
	drainTimeout = time.Second
)

// supervisor is the supervisor of a container. The goroutine of loop, which is locked to
// its thread, owns the state. Only it forks, since a child gets its death signal when the
// thread ends. Only it reaps children, so that the end of none is missed.
type supervisor struct {
	spec    Spec
	log     logFile
	streams sync.WaitGroup
	// reads are the outputs from which streams read.
	reads []*Output
	tty   *os.File // the master of the terminal
	// calls run in the goroutine of loop. It has no buffer; a sender also selects on done.
	calls chan func()
	// done is closed when the loop has ended.
	done chan struct{}

	// Owned by loop:

	command int // pid
	status  *unix.WaitStatus
	ended   time.Time
	execs   map[int]executed // by pid
	killing bool
	cpu     time.Duration

	stdin stdinPipe
}

// executed is a command of OpExec.
type executed struct {
	result chan<- Response // it has room for one
	kills  uint64          // the OOM kills of the container before the command
}

// oomCode is the exit code of a process that the kernel has killed because of its memory, and of a shell that
// returns the code of such a child.
const oomCode = 128 + int(unix.SIGKILL)

// run runs the supervisor until its container has ended. The working directory is that of
// the container.
func run(say *os.File) error {
	unix.CloseOnExec(readyFD)
	if err := closeInherited(); err != nil {
		return err
	}
	unix.Umask(0o027)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_CHILD_SUBREAPER: %w", err)
	}
	signals := make(chan os.Signal, 1) // one is enough, since all children are reaped each time
	signal.Notify(signals, unix.SIGCHLD)
	polite := make(chan os.Signal, 1) // one is enough, since it is forwarded once
	signal.Notify(polite, unix.SIGTERM)
	// These are caught and dropped. If they were ignored, the container's processes would
	// inherit that. Nothing reads the channel.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE,
		unix.SIGALRM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGTTOU, unix.SIGTTIN)
	// Not before, since each Notify would switch threads several times.
	runtime.LockOSThread()

	s := &supervisor{
		calls: make(chan func()), done: make(chan struct{}), execs: map[int]executed{},
	}
	var err error
	if s.spec, err = readSpec(RecordFile); err != nil {
		return err
	}
	s.log.path, s.log.limit = s.spec.LogPath, s.spec.LogLimit
	_ = os.Remove(SocketFile)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: SocketFile})
	if err != nil {
		return err
	}

	state, err := s.start()
	if err != nil {
		_ = os.Remove(SocketFile)
		now := time.Now()
		ctx, stop := untilTerminated()
		defer stop()
		_ = s.spec.Cgroup.Remove(ctx)
		message := err.Error()
		return errors.Join(
			WriteExit(".", Exit{Code: 128, Error: message, StartedAt: now, FinishedAt: now}),
			tell(say, ready{Error: message}))
	}
	if err := WriteFile(StateFile, state); err != nil {
		s.end()
		return errors.Join(err, tell(say, ready{Error: err.Error()}))
	}
	// The server may have ended.
	_ = tell(say, ready{State: state})

	go s.serve(listener)
	s.loop(signals, polite)
	s.finish(listener, state)
	return nil
}

// closeInherited closes the descriptors that the server has inherited and not opened, such
// as those of a shell: a container could read and write what they refer to. The descriptors
// of this process are closed on exec, as all those that Go opens.
func closeInherited() error {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("listing inherited descriptors: %w", err)
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		if err != nil || fd <= readyFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}

// untilTerminated returns a context that ends on SIGTERM. It is for a supervisor whose
// command has ended; before, SIGTERM is forwarded to the command.
func untilTerminated() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), unix.SIGTERM)
}

func tell(f *os.File, r ready) error {
	data, err := json.Marshal(r)
	if err == nil {
		_, err = f.Write(data)
	}
	return errors.Join(err, f.Close())
}

// start executes the command.
func (s *supervisor) start() (State, error) {
	if err := reserveExit("."); err != nil {
		return State{}, fmt.Errorf("reserving space for the record of its end: %w", err)
	}
	if err := s.log.open(); err != nil {
		return State{}, fmt.Errorf("opening its log: %w", err)
	}
	var files []*os.File
	var err error
	if s.spec.TTY {
		files, err = s.openTTY()
	} else {
		files, err = s.openPipes()
	}
	defer CloseFiles(files)
	if err != nil {
		return State{}, err
	}
	pid, err := s.fork(s.spec.Args, files, s.spec.TTY)
	if err != nil {
		return State{}, err
	}
	s.command = pid
	state := State{StartedAt: time.Now(), Cgroup: s.spec.Cgroup}
	// It is not reaped yet, so it exists even if it has ended.
	if state.Command, err = ProcessOf(pid); err == nil {
		state.Supervisor, err = ProcessOf(os.Getpid())
	}
	if err != nil {
		s.end()
		return State{}, err
	}
	return state, nil
}

// openPipes returns the three streams of the command and starts to read its output.
func (s *supervisor) openPipes() ([]*os.File, error) {
	in, err := os.Open(os.DevNull)
	if s.spec.Stdin {
		var w *os.File
		if err == nil {
			_ = in.Close()
		}
		if in, w, err = os.Pipe(); err == nil {
			s.stdin.w = w
		}
	}
	if err != nil {
		return nil, err
	}
	files := []*os.File{in}
	for _, name := range []string{"stdout", "stderr"} {
		r, w, err := os.Pipe()
		if err != nil {
			return files, err
		}
		files = append(files, w)
		s.read(name, r, drainTimeout)
	}
	return files, nil
}

// read copies a stream to the log. wait is that of its [Output].
func (s *supervisor) read(name string, r *os.File, wait time.Duration) {
	o := NewOutput(r, wait)
	s.reads = append(s.reads, o)
	s.streams.Go(func() { s.log.pump(name, o) })
}

// endOutput tells the streams that nothing of the tree writes to them any more.
func (s *supervisor) endOutput() {
	for _, o := range s.reads {
		o.End()
	}
}

// openTTY returns the terminal as each of the three streams.
func (s *supervisor) openTTY() ([]*os.File, error) {
	master, slave, err := OpenTTY()
	if err != nil {
		return nil, err
	}
	s.tty = master
	s.read("stdout", master, drainTimeout)
	return []*os.File{slave, slave, slave}, nil
}

// fork executes a command in the tree as the leader of a session. files are its three
// streams.
func (s *supervisor) fork(args []string, files []*os.File, tty bool) (int, error) {
	path, err := lookPath(args[0], s.spec.Env, s.spec.Dir)
	if err != nil {
		return 0, err
	}
	// ForkExec changes the directory itself, but its error does not say that it failed there.
	if st, err := os.Stat(s.spec.Dir); err != nil {
		return 0, fmt.Errorf("working directory: %w", err)
	} else if !st.IsDir() {
		return 0, fmt.Errorf("working directory %s is not a directory", s.spec.Dir)
	}
	env := s.spec.Env
	if tty && !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "TERM=") }) {
		env = append(slices.Clip(env), "TERM=xterm") // as in containerd
	}
	attr := &syscall.ProcAttr{
		Dir: s.spec.Dir, Env: env,
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: tty, Pdeathsig: syscall.SIGKILL},
	}
	for _, f := range files {
		fd := f.Fd()
		// Programs expect blocking streams.
		if err := unix.SetNonblock(int(fd), false); err != nil {
			return 0, err
		}
		attr.Files = append(attr.Files, fd)
	}
	if u := s.spec.User; u != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	if s.spec.NoNewPrivs {
		// This is for the thread and its children. The supervisor itself needs no new
		// privileges.
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return 0, fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
		}
	}
	return s.forkIn(path, args, attr)
}

// lookPath finds a command in PATH, as a shell with the environment does.
func lookPath(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil // relative to dir, where it is executed
	}
	path := ""
	for _, kv := range env { // the last value counts
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	var found error = fs.ErrNotExist
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		file := filepath.Join(d, name)
		st, err := os.Stat(file)
		switch {
		case err != nil || st.IsDir():
		case st.Mode()&0o111 == 0:
			found = fs.ErrPermission
		default:
			return file, nil
		}
	}
	return "", fmt.Errorf("command %q is not on this host (PATH=%s): %w", name, path, found)
}

// loop returns when the command has ended and no process of the tree is left.
func (s *supervisor) loop(signals, polite <-chan os.Signal) {
	defer close(s.done)
	tick := time.NewTimer(time.Hour)
	defer tick.Stop()
	passes := 0
	for {
		if left := s.reap(); s.status != nil && !left {
			return
		}
		if s.status != nil {
			s.killing = true
		}
		if s.killing {
			s.kill()
			passes++
			if passes < 500 {
				tick.Reset(killEvery)
			} else {
				tick.Reset(killSlowly)
			}
		}
		select {
		case <-signals:
		case <-tick.C:
		case <-polite:
			s.signal(unix.SIGTERM)
		case f := <-s.calls:
			f()
		}
	}
}

// reap reaps all children that have ended, and reports whether a child is left.
func (s *supervisor) reap() bool {
	for {
		var ws unix.WaitStatus
		var ru unix.Rusage
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, &ru)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return false
		case pid == 0:
			return true
		}
		s.cpu += time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
		if pid == s.command {
			s.status, s.ended = &ws, time.Now()
		}
		if e, ok := s.execs[pid]; ok {
			delete(s.execs, pid)
			code := exitCode(ws)
			e.result <- Response{Code: &code, OOM: code == oomCode && !s.killing && s.spec.Cgroup.OOMKills() > e.kills}
		}
	}
}

func exitCode(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

func (s *supervisor) kill() {
	s.spec.Cgroup.stop()
	killDescendants(os.Getpid())
}

// end kills the tree when loop does not run yet. It returns when no process is left. It
// cannot be cut short, because the processes that are left would have no supervisor.
func (s *supervisor) end() {
	for s.reap() {
		s.kill()
		time.Sleep(killEvery)
	}
}

// signal sends a signal to the process group of the command, unless the command has ended.
func (s *supervisor) signal(sig unix.Signal) {
	if s.status == nil {
		_ = unix.Kill(-s.command, sig)
	}
}

// finish records how the container ended. No process of the tree is left.
func (s *supervisor) finish(listener *net.UnixListener, state State) {
	exit := Exit{
		Code: exitCode(*s.status), StartedAt: state.StartedAt, FinishedAt: s.ended, CPU: s.cpu,
		OOM: s.spec.Cgroup.OOMKills() > 0,
	}
	if s.status.Signaled() {
		exit.Signal = int(s.status.Signal())
	}
	s.endOutput()
	s.streams.Wait()
	s.log.close()
	// The record is the last thing before the end of the process, which ends the lock: when
	// the lock is free, the record exists.
	ctx, stop := untilTerminated()
	defer stop()
	_ = s.spec.Cgroup.Remove(ctx)
	_ = listener.Close()
	for WriteExit(".", exit) != nil {
		// The disk does not keep what was reserved, or fails. Without the record the exit would be lost.
		if !flow.Sleep(ctx, time.Second) {
			return
		}
		if _, err := os.Stat(RecordFile); err != nil {
			return // the container was removed
		}
	}
}

// do runs f in the goroutine of loop. It returns false if loop has ended.
func (s *supervisor) do(f func()) bool {
	ran := make(chan struct{})
	select {
	case s.calls <- func() { defer close(ran); f() }:
		<-ran
		return true
	case <-s.done:
		return false
	}
}

// stdinPipe is the input of a command without a terminal.
type stdinPipe struct {
	mu sync.Mutex
	w  *os.File
}

// OpenTTY opens a new terminal. Reads from the master can have a deadline.
func OpenTTY() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening a terminal: %w", err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	defer func() {
		if err != nil {
			_ = master.Close()
		}
	}()
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, fmt.Errorf("opening a terminal: %w", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("opening a terminal: %w", err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	return master, slave, err
}

// uniqueFiles returns the files without repetitions.
func uniqueFiles(files []*os.File) []*os.File { return slices.Compact(files) }
