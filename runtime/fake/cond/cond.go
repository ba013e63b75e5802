// Package cond has the condition variable that the fakes of this module wait with:
// waiters evaluate their conditions after each change, and never poll.
package cond

import (
	"context"
	"fmt"
	"sync"
)

// Cond wakes waiters when something has changed. The zero value is ready to use; it
// is safe for concurrent use.
type Cond struct {
	mu sync.Mutex
	// changed is closed at the next change; nil while there are no waiters.
	changed chan struct{}
}

// Changed makes all waiters evaluate their conditions again. It may be called with a
// lock held that the conditions take.
func (c *Cond) Changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Until returns nil when met returns true: met is called at once, and after each
// change. When ctx ends before, the error wraps the cause of ctx and contains the
// result of describe, which may be nil.
func (c *Cond) Until(ctx context.Context, met func() bool, describe func() string) error {
	for {
		c.mu.Lock()
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()
		if met() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err := fmt.Errorf("condition not met: %w", context.Cause(ctx))
			if describe != nil {
				err = fmt.Errorf("%w; there is: %s", err, describe())
			}
			return err
		}
	}
}
