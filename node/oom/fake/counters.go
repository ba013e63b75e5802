package fake

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/kubeletkit/kubeletkit/node/oom"
)

// Counters are [oom.Counters] in memory. The zero value has no containers and is ready. A container is there from Set
// to End.
type Counters struct {
	mu      sync.Mutex
	counts  map[string]oom.Count
	watched map[string]string // the cgroup of its pod, by ID
	changed map[string]bool
	more    chan struct{} // closed when something has changed
	closed  bool
}

// Open returns the counters, for [oom.Options].
func (c *Counters) Open() (oom.Counters, error) { return c, nil }

// Set sets the counts of a container.
func (c *Counters) Set(id string, n oom.Count) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]oom.Count{}
	}
	c.counts[id] = n
	c.note(id)
}

// End removes the cgroup of a container.
func (c *Counters) End(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.counts, id)
	c.note(id)
}

func (c *Counters) note(id string) {
	if _, ok := c.watched[id]; !ok {
		return
	}
	if c.changed == nil {
		c.changed = map[string]bool{}
	}
	c.changed[id] = true
	if c.more != nil {
		close(c.more)
		c.more = nil
	}
}

// Watched returns the IDs of the containers that are watched.
func (c *Counters) Watched() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.watched))
}

// Closed reports whether the counters are closed.
func (c *Counters) Closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Add implements [oom.Counters].
func (c *Counters) Add(pod, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.counts[id]; !ok {
		return &fs.PathError{Op: "find", Path: pod + "/" + id, Err: fs.ErrNotExist}
	}
	if c.watched == nil {
		c.watched = map[string]string{}
	}
	c.watched[id] = pod
	return nil
}

// Remove implements [oom.Counters].
func (c *Counters) Remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watched, id)
	delete(c.changed, id)
}

// Wait implements [oom.Counters].
func (c *Counters) Wait(ctx context.Context) ([]string, error) {
	for {
		c.mu.Lock()
		if ids := slices.Sorted(maps.Keys(c.changed)); len(ids) > 0 {
			clear(c.changed)
			c.mu.Unlock()
			return ids, nil
		}
		if c.more == nil {
			c.more = make(chan struct{})
		}
		more := c.more
		c.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Read implements [oom.Counters].
func (c *Counters) Read(id string) (oom.Count, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.counts[id]
	if !ok {
		return oom.Count{}, &fs.PathError{Op: "read", Path: id, Err: fs.ErrNotExist}
	}
	return n, nil
}

// Close implements [oom.Counters].
func (c *Counters) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}
