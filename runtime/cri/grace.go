package cri

import (
	"context"
	"sync"
	"time"
)

// graceClock is the time that counts towards the grace periods of a pod. It stands still
// while a stop of one of its containers waits at the gate, so that no container has less
// time because many pods end at once. The zero value runs.
type graceClock struct {
	mu sync.Mutex
	// stood is how long the clock has stood still, without the present time.
	stood time.Duration
	// waiting is the number of stops at the gate, since is when the first of them came.
	waiting int
	since   time.Time
	// changed is closed when the clock is stopped or runs again. nil: nobody waits for that.
	changed chan struct{}
}

// stop stops the clock until start is called.
func (c *graceClock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting++; c.waiting == 1 {
		c.since = time.Now()
		c.notify()
	}
}

func (c *graceClock) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting--; c.waiting == 0 {
		c.stood += time.Since(c.since)
		c.notify()
	}
}

func (c *graceClock) notify() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// left returns what is left of a grace period. runs is false while the clock stands, and
// changed is closed when that changes.
func (c *graceClock) left(began time.Time, grace time.Duration) (left time.Duration, runs bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	now := time.Now()
	if c.waiting > 0 {
		now = c.since
	}
	return grace - (now.Sub(began) - c.stood), c.waiting == 0, c.changed
}

// await waits until turn is closed, the grace period has ended, or ctx.
func (c *graceClock) await(ctx context.Context, turn <-chan struct{}, began time.Time, grace time.Duration) {
	for {
		left, runs, changed := c.left(began, grace)
		if left <= 0 {
			return
		}
		t := time.NewTimer(left)
		end := t.C
		if !runs {
			end = nil
		}
		select {
		case <-changed:
			t.Stop()
			continue
		case <-turn:
		case <-end:
		case <-ctx.Done():
		}
		t.Stop()
		return
	}
}
