package oom

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/node/internal/cgroupfs"
)

// OpenCounters opens the counts of kills in the cgroups below /sys/fs/cgroup: memory.events of cgroup v2, or
// memory.oom_control of v1. The kernel reports when they change. Each container takes a file descriptor.
func OpenCounters() (Counters, error) { return openCounters(cgroupfs.Mount) }

func openCounters(mount string) (Counters, error) {
	c := &counters{dirs: map[string]string{}, again: map[string]repetition{}}
	var err error
	if c.mount, c.legacy, err = cgroupfs.Dir(mount, "memory", "/"); err != nil {
		return nil, fmt.Errorf("finding the cgroups of memory: %w", err)
	}
	if c.signals, err = cgroupfs.NewSignals(); err != nil {
		return nil, err
	}
	return c, nil
}

type counters struct {
	mount   string
	signals *cgroupfs.Signals
	// legacy means cgroup v1: it signals before a process is killed and counted, and when the cgroup is removed.
	legacy bool

	mu   sync.Mutex
	dirs map[string]string // of the cgroups, by ID
	// again are the IDs to read again, with the number of the next repetition and its time.
	again map[string]repetition
}

type repetition struct {
	n  int
	at time.Time
}

// repeatAfter is the time to the repetition n of a read of late counts: the count grows when the victim has been
// chosen.
func repeatAfter(n int) time.Duration { return time.Millisecond * time.Duration(math.Pow10(n)) }

const repeats = 4 // the last one a second after the one before

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
		if e.IsDir() && cgroupfs.ContainerOf(e.Name()) == id {
			at := filepath.Join(dir, e.Name())
			if err := c.watch(id, at); err != nil {
				c.signals.Remove(id)
				return fmt.Errorf("watching the cgroup %s: %w", at, err)
			}
			c.dirs[id] = at
			return nil
		}
	}
	return &fs.PathError{Op: "find", Path: filepath.Join(dir, id), Err: fs.ErrNotExist}
}

func (c *counters) watch(id, dir string) error {
	if !c.legacy {
		return c.signals.AddEvents(id, filepath.Join(dir, "memory.events"))
	}
	if err := c.signals.AddNotification(id); err != nil {
		return err
	}
	return c.signals.Notify(id, dir, "memory.oom_control", "")
}

// Remove implements [Counters].
func (c *counters) Remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signals.Remove(id)
	delete(c.dirs, id)
	delete(c.again, id)
}

// Wait implements [Counters].
func (c *counters) Wait(ctx context.Context) (ids []string, err error) {
	for {
		if ids, err = c.signals.Wait(ctx, c.next()); err != nil {
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
	if !c.legacy {
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
	n, err := c.read(dir)
	if errors.Is(err, unix.ENODEV) { // it was removed while it was read
		err = &fs.PathError{Op: "read", Path: dir, Err: fs.ErrNotExist}
	}
	return n, err
}

func (c *counters) read(dir string) (Count, error) {
	name := "memory.events"
	if c.legacy {
		name = "memory.oom_control"
	}
	all, err := cgroupfs.Counts(filepath.Join(dir, name))
	if err != nil {
		return Count{}, err
	}
	kills, ok := all["oom_kill"]
	if !ok { // Linux before 4.13
		return Count{}, fmt.Errorf("%s has no number of kills: %w", filepath.Join(dir, name), errors.ErrUnsupported)
	}
	n := Count{Kills: kills}
	if !c.legacy {
		if own, err := cgroupfs.Counts(filepath.Join(dir, "memory.events.local")); err == nil { // Linux 5.2
			n.Limit = own["oom"]
		}
	}
	return n, nil
}

// Close implements [Counters].
func (c *counters) Close() error { return c.signals.Close() }
