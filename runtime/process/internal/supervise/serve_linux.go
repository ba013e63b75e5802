package supervise

import (
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// serve answers requests until the listener is closed.
func (s *supervisor) serve(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			select {
			case <-s.done:
				return
			case <-time.After(50 * time.Millisecond): // it may be out of file descriptors
				continue
			}
		}
		go func() {
			defer func() {
				// A panic would end the supervisor, and with it the container.
				if v := recover(); v != nil {
					fmt.Fprintf(os.Stderr, "answering a request: panic: %v\n%s", v, debug.Stack())
				}
			}()
			s.answer(&Conn{c})
		}()
	}
}

func (s *supervisor) answer(c *Conn) {
	defer c.Close()
	var req Request
	files, err := c.Receive(&req)
	if err != nil {
		return
	}
	defer CloseFiles(files)
	var resp Response
	running := true
	switch req.Op {
	case OpWatch:
		if c.Send(resp) == nil {
			_ = c.untilClosed() // until the server or this process ends
		}
		return
	case OpSignal:
		running = s.do(func() { s.signal(unix.Signal(req.Signal)) })
	case OpKill:
		running = s.do(func() { s.killing = true })
	case OpReopen:
		if err := s.log.open(); err != nil {
			resp.Error = err.Error()
		}
	case OpLimitLog:
		s.log.setLimit(req.LogLimit)
	case OpExec:
		s.exec(c, &req, files)
		return
	case OpAttach:
		s.attach(c, &req, files)
		return
	default:
		resp.Error = "unknown request " + string(req.Op)
	}
	if !running {
		resp.Error = "the container has ended"
	}
	_ = c.Send(resp)
}

// untilClosed returns when the other side has closed the connection.
func (c *Conn) untilClosed() error {
	_, err := c.c.Read(make([]byte, 1))
	return err
}

// exec runs a command in the tree and returns when it has ended.
func (s *supervisor) exec(c *Conn, req *Request, files []*os.File) {
	want := 3
	if req.TTY {
		want = 1
	}
	if len(files) != want || len(req.Args) == 0 {
		_ = c.Send(Response{Error: "exec: a command and its files are required"})
		return
	}
	if req.TTY {
		files = []*os.File{files[0], files[0], files[0]}
	}
	result := make(chan Response, 1)
	pid, message := 0, "the container has ended"
	s.do(func() {
		if s.status != nil || s.killing {
			return
		}
		kills := s.spec.Cgroup.OOMKills()
		p, err := s.fork(req.Args, files, req.TTY)
		if err != nil {
			message = err.Error()
			return
		}
		pid, s.execs[p] = p, executed{result, kills}
	})
	// The command has copies. As long as these are open, readers of its output wait.
	CloseFiles(uniqueFiles(files))
	if pid == 0 {
		_ = c.Send(Response{Error: message})
		return
	}
	gone := make(chan struct{})
	if c.Send(Response{PID: pid}) != nil {
		close(gone)
	} else {
		go func() {
			defer close(gone)
			_ = c.untilClosed()
		}()
	}
	select {
	case ended := <-result:
		_ = c.Send(ended)
	case <-gone:
		s.do(func() {
			if _, ok := s.execs[pid]; ok { // not reaped yet, so the pid is not reused
				_ = unix.Kill(-pid, unix.SIGKILL)
			}
		})
		<-result
	}
}

// attach sends the container's input to the client and copies its output to the client's
// files, until the client disconnects or the container ends.
func (s *supervisor) attach(c *Conn, req *Request, files []*os.File) {
	a := &attachment{gone: make(chan struct{})}
	var err error
	for i, f := range files {
		var own *os.File
		if own, err = nonblocking(f); err != nil {
			break
		}
		if i == 0 {
			a.out = own
		} else {
			a.err = own
		}
	}
	if err != nil || a.out == nil {
		CloseFiles([]*os.File{a.out, a.err})
		_ = c.Send(Response{Error: "attach: one or two pipes are required"})
		return
	}
	var input []*os.File
	once := false
	if req.Stdin {
		s.stdin.mu.Lock()
		switch {
		case s.tty != nil:
			input = []*os.File{s.tty}
		case s.stdin.w != nil:
			input = []*os.File{s.stdin.w}
			once = s.spec.StdinOnce
		}
		s.stdin.mu.Unlock()
	}
	s.log.attach(a)
	defer s.log.detach(a)
	if c.Send(Response{}, input...) != nil {
		return
	}
	if once {
		// Now only the client has the input open.
		s.stdin.mu.Lock()
		if s.stdin.w != nil {
			_ = s.stdin.w.Close()
			s.stdin.w = nil
		}
		s.stdin.mu.Unlock()
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = c.untilClosed()
	}()
	select {
	case <-gone:
	case <-a.gone:
	}
}

// nonblocking returns a copy of a file whose writes can have a deadline.
func nonblocking(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
