package eviction

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The triggers of pressure stall information (Documentation/accounting/psi.rst): tasks that wait for memory for that many
// microseconds of a window. Without CAP_SYS_RESOURCE, windows are multiples of 2 s.
var pressureTriggers = []string{"some 50000 1000000", "some 100000 2000000"}

const (
	// rearmPeriod is the time between two looks at the levels of version 1 of cgroups, and at cgroups that were not there.
	rearmPeriod = 10 * time.Second
	// leastPause is the time after a signal in which others are one with it.
	leastPause = 50 * time.Millisecond
)

// Watch implements [Sensor] for memory. It uses triggers of pressure stall information, for the machine and for the cgroup of all
// pods, events of that cgroup, and on version 1 of cgroups, notifications about levels of usage. It needs one thread. The error
// means that there is none of them, and none can come with the cgroup of all pods.
func (m *Machine) Watch(ctx context.Context, thresholds []Threshold, wake func()) error {
	w := &watch{Machine: m, wake: wake, sources: map[string]*source{}}
	for _, t := range thresholds {
		if t.Signal.kind() == 0 {
			w.thresholds = append(w.thresholds, t)
		}
	}
	if len(w.thresholds) == 0 {
		<-ctx.Done()
		return nil
	}
	var err error
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("eviction: epoll: %w", err)
	}
	defer func() { _ = unix.Close(w.epoll) }()
	if w.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eviction: eventfd: %w", err)
	}
	ended := make(chan struct{})
	defer func() { <-ended; _ = unix.Close(w.stop) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(ended)
		<-ctx.Done()
		_, _ = unix.Write(w.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}()
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, w.stop, &unix.EpollEvent{Fd: int32(w.stop), Events: unix.EPOLLIN}); err != nil {
		return fmt.Errorf("eviction: epoll: %w", err)
	}
	defer w.close()
	missing := w.arm()
	if len(w.sources) == 0 && m.opts.PodsCgroup == nil {
		return errors.Join(missing...)
	}
	if len(missing) > 0 {
		m.opts.Logger.Info("Some of the kernel's signals about memory are missing", "reason", errors.Join(missing...).Error())
	}
	return w.loop(ctx)
}

// watch is one call of [Machine.Watch].
type watch struct {
	*Machine
	wake        func()
	thresholds  []Threshold
	epoll, stop int
	sources     map[string]*source
}

// source is a file that the kernel signals something with.
type source struct {
	fd int
	// usage means that it is a notification about usage.
	usage bool
	// level is the usage that it is about, in the cgroup with the number inode of its directory. It is 0 as long as there is no such
	// cgroup.
	level int64
	inode uint64
}

// loop waits for signals until ctx ends.
func (w *watch) loop(ctx context.Context) error {
	events := make([]unix.EpollEvent, 16)
	for ctx.Err() == nil {
		n, err := unix.EpollWait(w.epoll, events, int(rearmPeriod/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("eviction: epoll: %w", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		woken := false
		for _, e := range events[:max(0, n)] {
			if int(e.Fd) == w.stop {
				return nil
			}
			woken = true
			w.take(int(e.Fd), e.Events)
		}
		if woken {
			w.wake()
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(w.stop), Events: unix.POLLIN}}, int(leastPause/time.Millisecond))
		}
		w.arm()
	}
	return nil
}

// take takes a signal, so that it is not there any more. A source that has failed, such as that of a cgroup that was removed, is
// dropped.
func (w *watch) take(fd int, events uint32) {
	for name, s := range w.sources {
		if s.fd != fd {
			continue
		}
		if s.usage {
			var buf [8]byte
			_, _ = unix.Read(fd, buf[:])
			return
		}
		var buf [512]byte
		_, err := unix.Pread(fd, buf[:], 0) // events of a cgroup are signalled again only after they were read
		if err != nil || events&(unix.EPOLLERR) != 0 && !strings.HasSuffix(name, "memory.events") || events&unix.EPOLLHUP != 0 {
			w.drop(name)
		}
		return
	}
}

func (w *watch) drop(name string) {
	if s := w.sources[name]; s != nil {
		_ = unix.Close(s.fd)
		delete(w.sources, name)
	}
}

func (w *watch) close() {
	for name := range w.sources {
		w.drop(name)
	}
}

// add adds a source, in place of the one of that name. The file descriptor is closed if that fails.
func (w *watch) add(name string, s source, events uint32) error {
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Fd: int32(s.fd), Events: events}); err != nil {
		_ = unix.Close(s.fd)
		return fmt.Errorf("waiting for %s: %w", name, err)
	}
	w.drop(name)
	w.sources[name] = &s
	return nil
}

// arm adds the sources that are missing, and brings the levels up to date. It returns why sources are missing.
func (w *watch) arm() (missing []error) {
	note := func(err error) {
		if err != nil {
			missing = append(missing, err)
		}
	}
	note(w.pressure(filepath.Join(w.opts.proc, "pressure/memory")))
	pods := w.podsCgroup()
	if _, legacy, _ := cgroupDir(w.opts.cgroup, "memory", "/"); legacy {
		for _, t := range w.thresholds {
			switch {
			case t.Signal == MemoryAvailable:
				note(w.usage(t, "/"))
			case pods != "":
				_ = w.usage(t, pods) // the cgroup is made with the first pod
			}
		}
		return missing
	}
	if pods != "" {
		dir := filepath.Join(w.opts.cgroup, pods)
		_ = w.pressure(filepath.Join(dir, "memory.pressure"))
		_ = w.events(filepath.Join(dir, "memory.events"))
	}
	return missing
}

// pressure adds a trigger of pressure stall information.
func (w *watch) pressure(file string) error {
	if w.sources[file] != nil {
		return nil
	}
	var err error
	for _, trigger := range pressureTriggers {
		var fd int
		if fd, err = unix.Open(file, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			break
		}
		if _, err = unix.Write(fd, append([]byte(trigger), 0)); err == nil {
			return w.add(file, source{fd: fd}, unix.EPOLLPRI)
		}
		_ = unix.Close(fd)
	}
	return fmt.Errorf("pressure stall information: %w", &os.PathError{Op: "trigger", Path: file, Err: err})
}

// events adds the events of a cgroup: its limits were reached.
func (w *watch) events(file string) error {
	if w.sources[file] != nil {
		return nil
	}
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return w.add(file, source{fd: fd}, unix.EPOLLPRI)
}

// usage sets a notification of the usage at which the threshold is met, or moves it. Its file descriptor is there from the beginning,
// so that the agent does not need one more when the cgroup is made.
func (w *watch) usage(t Threshold, path string) error {
	name := fmt.Sprintf("%s %s", path, t)
	if w.sources[name] == nil {
		if err := w.eventfd(name); err != nil {
			return err
		}
	}
	s, dir := w.sources[name], filepath.Join(w.opts.cgroup, "memory", path)
	var at unix.Stat_t
	if err := unix.Stat(dir, &at); err != nil {
		s.level = 0 // what was set has ended with the cgroup
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	level, left, err := w.level(t, dir)
	if err != nil || level == 0 {
		return err
	}
	if s.level != 0 && s.inode == at.Ino {
		if abs(s.level-level) <= max(1<<20, abs(left)/20) {
			return nil
		}
		if err := w.eventfd(name); err != nil { // the kernel forgets a level only with its file descriptor
			return err
		}
		s = w.sources[name]
	}
	file, err := unix.Open(filepath.Join(dir, "memory.usage_in_bytes"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(file) }()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), fmt.Appendf(nil, "%d %d %d", s.fd, file, level), 0); err != nil {
		return err
	}
	s.level, s.inode = level, at.Ino
	return nil
}

// eventfd adds a source for notifications about usage.
func (w *watch) eventfd(name string) error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	return w.add(name, source{fd: fd, usage: true}, unix.EPOLLIN)
}

// level returns the usage of a cgroup at which the threshold is met, and how far that is; 0 if that is not known now.
func (w *watch) level(t Threshold, dir string) (level, left int64, err error) {
	used, err := number(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		return 0, 0, err
	}
	readings := Readings{}
	if t.Signal == MemoryAvailable {
		err = w.memory(readings, time.Now())
	} else {
		err = w.podsMemory(readings, time.Now())
	}
	r, ok := readings[t.Signal]
	if err != nil || !ok {
		return 0, 0, err
	}
	// The rest of the usage stays as it is, as in kubelet: each page more is one less that is available.
	left = r.Available - t.need(r.Capacity, false)
	return max(1, used+left+1), left, nil
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}
