package oom

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// OpenCounters opens the counts of kills in the cgroups below /sys/fs/cgroup: memory.events of cgroup v2, or memory.oom_control of v1.
// The kernel reports when they change.
func OpenCounters() (Counters, error) { return openCounters("/sys/fs/cgroup") }

func openCounters(mount string) (Counters, error) {
	v1 := filepath.Join(mount, "memory")
	if _, err := os.Stat(filepath.Join(v1, "cgroup.procs")); err == nil {
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err == nil {
			err = unix.SetNonblock(fd, true)
		}
		if err != nil {
			return nil, fmt.Errorf("watching cgroups: %w", err)
		}
		return newCounters(v1, fd, &events1{epoll: fd, byID: map[string]int{}, byFD: map[int32]string{}})
	}
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err != nil {
		return nil, fmt.Errorf("finding the cgroups of memory: %w", err)
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watching cgroups: %w", err)
	}
	return newCounters(mount, fd, &events2{inotify: fd, byID: map[string]int{}, byWatch: map[int32]string{}, buf: make([]byte, 4096)})
}

// events are the changes that the kernel reports by one file. Its methods are called one at a time.
type events interface {
	add(dir, id string) error
	remove(id string)
	// ready returns the IDs whose counts may have changed, without waiting.
	ready() (ids []string, err error)
	// late reports whether a kill is counted some time after it was reported.
	late() bool
	read(dir string) (Count, error)
	close()
}

type counters struct {
	mount string
	file  *os.File
	conn  syscall.RawConn

	mu     sync.Mutex
	events events
	dirs   map[string]string // of the cgroups, by ID
	// again are the IDs to read again, with the number of the next repetition and its time.
	again map[string]repetition
}

type repetition struct {
	n  int
	at time.Time
}

// repeatAfter is the time to the repetition n of a read of late counts: the count grows when the victim has been chosen.
func repeatAfter(n int) time.Duration { return time.Millisecond * time.Duration(math.Pow10(n)) }

const repeats = 4 // the last one a second after the one before

func newCounters(mount string, fd int, e events) (Counters, error) {
	f := os.NewFile(uintptr(fd), "cgroups")
	conn, err := f.SyscallConn()
	if err == nil {
		err = f.SetReadDeadline(time.Time{}) // it fails if the file cannot be waited for
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watching cgroups: %w", err), f.Close())
	}
	return &counters{mount: mount, file: f, conn: conn, events: e, dirs: map[string]string{}, again: map[string]repetition{}}, nil
}

// Add implements [Counters].
func (c *counters) Add(pod, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.dirs[id]; ok {
		return nil
	}
	dir := filepath.Join(c.mount, filepath.Clean("/"+pod))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && containerOf(e.Name()) == id {
			at := filepath.Join(dir, e.Name())
			if err := c.events.add(at, id); err != nil {
				return fmt.Errorf("watching the cgroup %s: %w", at, err)
			}
			c.dirs[id] = at
			return nil
		}
	}
	return &fs.PathError{Op: "find", Path: filepath.Join(dir, id), Err: fs.ErrNotExist}
}

// Remove implements [Counters].
func (c *counters) Remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.dirs[id]; ok {
		c.events.remove(id)
		delete(c.dirs, id)
		delete(c.again, id)
	}
}

// Wait implements [Counters].
func (c *counters) Wait(ctx context.Context) (ids []string, err error) {
	for {
		if err := c.file.SetReadDeadline(c.next()); err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { _ = c.file.SetReadDeadline(time.Unix(1, 0)) })
		var failed error
		err := c.conn.Read(func(uintptr) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			ids, failed = c.events.ready()
			return len(ids) > 0 || failed != nil
		})
		stop()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case failed != nil:
			return nil, failed
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return nil, err
		}
		if ids = c.due(ids); len(ids) > 0 {
			return ids, nil
		}
	}
}

// next returns when the next repetition is due; zero if there is none.
func (c *counters) next() (at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.again {
		if at.IsZero() || r.at.Before(at) {
			at = r.at
		}
	}
	return at
}

// due plans the repetitions for the IDs, and returns them with those whose repetition is due.
func (c *counters) due(ids []string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.events.late() {
		return ids
	}
	now := time.Now()
	for id, r := range c.again {
		if r.at.After(now) {
			continue
		}
		ids = append(ids, id)
		if r.n++; r.n == repeats {
			delete(c.again, id)
			continue
		}
		c.again[id] = repetition{r.n, now.Add(repeatAfter(r.n))}
	}
	for _, id := range ids {
		if _, ok := c.again[id]; !ok && c.dirs[id] != "" {
			c.again[id] = repetition{0, now.Add(repeatAfter(0))}
		}
	}
	return ids
}

// Read implements [Counters].
func (c *counters) Read(id string) (Count, error) {
	c.mu.Lock()
	dir := c.dirs[id]
	c.mu.Unlock()
	if dir == "" {
		return Count{}, &fs.PathError{Op: "read", Path: id, Err: fs.ErrNotExist}
	}
	n, err := c.events.read(dir)
	if errors.Is(err, unix.ENODEV) { // it was removed while it was read
		err = &fs.PathError{Op: "read", Path: dir, Err: fs.ErrNotExist}
	}
	return n, err
}

// Close implements [Counters].
func (c *counters) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events.close()
	return c.file.Close()
}

// maxCounts is the most that is read of a file of counts. The kernel writes less than 200 bytes.
const maxCounts = 4096

// readCounts returns the numbers of a file that has a name and a number in each line.
func readCounts(path string) (map[string]uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, maxCounts)
	n, err := f.Read(buf)
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for line := range strings.Lines(string(buf[:n])) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseUint(number, 10, 64); err == nil {
			out[name] = v
		}
	}
	return out, nil
}

// events2 has the changes of cgroup v2: memory.events is modified.
type events2 struct {
	inotify int
	byID    map[string]int
	byWatch map[int32]string
	buf     []byte
}

func (e *events2) add(dir, id string) error {
	wd, err := unix.InotifyAddWatch(e.inotify, filepath.Join(dir, "memory.events"), unix.IN_MODIFY)
	if err == nil {
		e.byID[id], e.byWatch[int32(wd)] = wd, id
	}
	return err
}

func (e *events2) remove(id string) {
	wd := e.byID[id]
	_, _ = unix.InotifyRmWatch(e.inotify, uint32(wd)) // it is gone with its cgroup
	delete(e.byID, id)
	delete(e.byWatch, int32(wd))
}

func (e *events2) ready() (ids []string, err error) {
	n, err := unix.Read(e.inotify, e.buf)
	if err == unix.EAGAIN || err == unix.EINTR {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the changes of cgroups: %w", err)
	}
	for left := e.buf[:n]; len(left) >= unix.SizeofInotifyEvent; {
		wd, mask := int32(binary.NativeEndian.Uint32(left)), binary.NativeEndian.Uint32(left[4:])
		name := int(binary.NativeEndian.Uint32(left[12:]))
		left = left[min(len(left), unix.SizeofInotifyEvent+name):]
		if mask&unix.IN_Q_OVERFLOW != 0 { // then any may have changed
			ids = ids[:0]
			for id := range e.byID {
				ids = append(ids, id)
			}
			return ids, nil
		}
		if id, ok := e.byWatch[wd]; ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (e *events2) late() bool { return false }

func (e *events2) read(dir string) (Count, error) {
	all, err := readCounts(filepath.Join(dir, "memory.events"))
	if err != nil {
		return Count{}, err
	}
	own, err := readCounts(filepath.Join(dir, "memory.events.local")) // Linux 5.2
	if err != nil {
		own = nil
	}
	return Count{Kills: all["oom_kill"], Limit: own["oom"]}, nil
}

func (e *events2) close() {}

// events1 has the changes of cgroup v1: a file of events is signaled before a process is killed, and when the cgroup is removed.
type events1 struct {
	epoll int
	byID  map[string]int
	byFD  map[int32]string
}

func (e *events1) add(dir, id string) error {
	control, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return err
	}
	defer func() { _ = control.Close() }()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	if err = os.WriteFile(filepath.Join(dir, "cgroup.event_control"), fmt.Appendf(nil, "%d %d", fd, control.Fd()), 0); err == nil {
		err = unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	e.byID[id], e.byFD[int32(fd)] = fd, id
	return nil
}

func (e *events1) remove(id string) {
	fd := e.byID[id]
	delete(e.byID, id)
	delete(e.byFD, int32(fd))
	_ = unix.Close(fd) // this also takes it from the epoll
}

func (e *events1) ready() (ids []string, err error) {
	var list [64]unix.EpollEvent
	n, err := unix.EpollWait(e.epoll, list[:], 0)
	if err == unix.EINTR {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the changes of cgroups: %w", err)
	}
	for _, event := range list[:n] {
		var number [8]byte
		_, _ = unix.Read(int(event.Fd), number[:]) // from now on it signals the next change
		if id, ok := e.byFD[event.Fd]; ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (e *events1) late() bool { return true }

func (e *events1) read(dir string) (Count, error) {
	all, err := readCounts(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return Count{}, err
	}
	kills, ok := all["oom_kill"]
	if !ok { // Linux before 4.13
		return Count{}, fmt.Errorf("%s has no number of kills: %w", filepath.Join(dir, "memory.oom_control"), errors.ErrUnsupported)
	}
	return Count{Kills: kills}, nil
}

func (e *events1) close() {
	for _, fd := range e.byID {
		_ = unix.Close(fd)
	}
}
