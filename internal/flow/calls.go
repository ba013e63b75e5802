package flow

import (
	"context"
	"errors"
	"fmt"
)

// ErrUnderWay means that an earlier call has not returned.
var ErrUnderWay = errors.New("an earlier call is under way")

// Calls makes calls that may never return, such as those of the kernel for a file system whose server does not answer.
// There is at most one call for each key. The zero value is ready. It is safe for concurrent use.
type Calls struct {
	// locks has a lock for each key, which is held until the call has returned.
	locks Locks
}

// Do calls f with ctx, after an earlier call for the key, and returns its error. If ctx ends before that, Do returns
// and the call stays behind. The error wraps [ErrUnderWay] if ctx ends before f is called.
func (c *Calls) Do(ctx context.Context, key string, f func(context.Context) error) error {
	unlock, err := c.locks.Lock(ctx, key)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnderWay, err)
	}
	result := make(chan error, 1) // of one, so that a call that stays behind ends
	go func() {
		defer unlock()
		result <- f(ctx)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// UnderWay reports whether a call for the key has not returned.
func (c *Calls) UnderWay(key string) bool { return c.locks.Locked(key) }

// Idle reports whether all calls have returned.
func (c *Calls) Idle() bool { return c.locks.Idle() }
