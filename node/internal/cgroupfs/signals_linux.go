package cgroupfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Signals waits for signals of the kernel, each by a file descriptor with a name. It takes no thread while it waits.
// Its methods may be called concurrently, but Wait by one goroutine only.
type Signals struct {
	file *os.File // the epoll
	conn syscall.RawConn

	mu     sync.Mutex
	byName map[string]int
	byFD   map[int32]source
}

// source is a file descriptor that the kernel signals something with.
type source struct {
	name string
	kind kind
}

type kind int

const (
	events  kind = iota // a file that is signaled when it has changed
	trigger             // of pressure stall information
	counter             // an eventfd
)

// NewSignals returns signals without names. The caller closes them.
func NewSignals() (*Signals, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, fmt.Errorf("watching cgroups: %w", err)
	}
	f := os.NewFile(uintptr(fd), "cgroups")
	conn, err := f.SyscallConn()
	if err == nil {
		err = f.SetReadDeadline(time.Time{}) // it fails if the file cannot be waited for
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watching cgroups: %w", err), f.Close())
	}
	return &Signals{file: f, conn: conn, byName: map[string]int{}, byFD: map[int32]source{}}, nil
}

// AddEvents adds a file of which the kernel signals changes from now on, such as memory.events.
func (s *Signals) AddEvents(name, file string) error {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: file, Err: err}
	}
	_, _ = unix.Pread(fd, make([]byte, 512), 0) // a file that was not read is signaled
	return s.add(name, fd, events, unix.EPOLLPRI)
}

// AddTrigger adds a trigger of a file of pressure stall information.
func (s *Signals) AddTrigger(name, file, text string) error {
	fd, err := unix.Open(file, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: file, Err: err}
	}
	if _, err := unix.Write(fd, append([]byte(text), 0)); err != nil {
		_ = unix.Close(fd)
		return &os.PathError{Op: "trigger", Path: file, Err: err}
	}
	return s.add(name, fd, trigger, unix.EPOLLPRI)
}

// AddNotification adds what [Signals.Notify] sets. It signals nothing before.
func (s *Signals) AddNotification(name string) error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	return s.add(name, fd, counter, unix.EPOLLIN)
}

// Notify sets a notification of version 1 of cgroups about a file in the directory of a cgroup, such as
// memory.oom_control. args is empty, or what the file needs beside. The kernel forgets it when the name is removed or
// added anew.
func (s *Signals) Notify(name, dir, file, args string) error {
	of, err := os.Open(filepath.Join(dir, file))
	if err != nil {
		return err
	}
	defer func() { _ = of.Close() }()
	s.mu.Lock()
	defer s.mu.Unlock()
	fd, ok := s.byName[name]
	if !ok {
		return fmt.Errorf("notification %s: %w", name, os.ErrNotExist)
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.event_control"), fmt.Appendf(nil, "%d %d %s", fd, of.Fd(), args), 0)
}

// add adds a file descriptor, in place of the one of that name. It closes the file descriptor if that fails.
func (s *Signals) add(name string, fd int, k kind, mask uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := unix.EpollCtl(int(s.epoll()), unix.EPOLL_CTL_ADD, fd,
		&unix.EpollEvent{Fd: int32(fd), Events: mask}); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("waiting for %s: %w", name, err)
	}
	s.remove(name)
	s.byName[name], s.byFD[int32(fd)] = fd, source{name, k}
	return nil
}

func (s *Signals) epoll() (fd uintptr) {
	_ = s.conn.Control(func(f uintptr) { fd = f })
	return fd
}

// Has reports whether there is a signal of the name.
func (s *Signals) Has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.byName[name]
	return ok
}

// Len returns the number of names.
func (s *Signals) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byName)
}

// Remove removes a signal. It does nothing if there is none of the name.
func (s *Signals) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(name)
}

func (s *Signals) remove(name string) {
	if fd, ok := s.byName[name]; ok {
		delete(s.byName, name)
		delete(s.byFD, int32(fd))
		_ = unix.Close(fd) // this also takes it from the epoll
	}
}

// Wait returns the names of the next signals; none at the deadline, if that is not zero. A signal that has failed, such
// as that of a cgroup that was removed, is among them and removed. The error is that of ctx when it ends.
func (s *Signals) Wait(ctx context.Context, deadline time.Time) (names []string, err error) {
	if err := s.file.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var failed error
	err = s.conn.Read(func(epoll uintptr) bool {
		names, failed = s.ready(int(epoll))
		return len(names) > 0 || failed != nil
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case failed != nil:
		return nil, fmt.Errorf("watching cgroups: %w", failed)
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
		return nil, err
	}
	return names, nil
}

// ready takes the signals that are there, without waiting.
func (s *Signals) ready(epoll int) (names []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list [64]unix.EpollEvent
	n, err := unix.EpollWait(epoll, list[:], 0)
	for err == unix.EINTR {
		n, err = unix.EpollWait(epoll, list[:], 0)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range list[:n] {
		from, ok := s.byFD[e.Fd]
		if !ok {
			continue
		}
		names = append(names, from.name)
		var buf [512]byte
		if from.kind == counter {
			_, _ = unix.Read(int(e.Fd), buf[:8])
			continue
		}
		_, err := unix.Pread(int(e.Fd), buf[:], 0) // the next change is signaled only after a read
		// A change of a file is an EPOLLERR, too.
		if err != nil || e.Events&unix.EPOLLHUP != 0 || from.kind == trigger && e.Events&unix.EPOLLERR != 0 {
			s.remove(from.name)
		}
	}
	return names, nil
}

// Close removes all signals. Wait must not be running.
func (s *Signals) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.byName {
		s.remove(name)
	}
	return s.file.Close()
}
