// Package cond is what the fakes of this module wait with: a condition that is
// looked at again after each change, and never by the clock.
package cond

import (
	"context"
	"fmt"
	"sync"
)

// Cond tells those who wait that something has changed. The zero value is ready;
// it is safe for concurrent use.
type Cond struct {
	mu sync.Mutex
	// changed is closed at the next change; nil while nobody waits.
	changed chan struct{}
}

// Changed has everybody who waits look again. It may be called with a lock held
// that their conditions take.
func (c *Cond) Changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Until returns nil when met is true: it is asked at once, and after each change.
// When ctx ends before, the error is its cause, with what describe says, if that
// is not nil.
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
			err := fmt.Errorf("what was waited for did not come about: %w", context.Cause(ctx))
			if describe != nil {
				err = fmt.Errorf("%w; there is: %s", err, describe())
			}
			return err
		}
	}
}
