package flow

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrUnderWay means that an earlier call has not returned.
var ErrUnderWay = errors.New("an earlier call is under way")

// Calls makes calls that may never return, such as those of the kernel for a file system whose server does not answer.
// There is at most one call for each key. The zero value is ready. It is safe for concurrent use.
type Calls struct {
	mu sync.Mutex
	// held has a channel for each call, which is closed when the call has returned.
	held map[string]chan struct{}
}

// Do calls f with ctx, after an earlier call for the key, and returns its error. If ctx ends before that, Do returns
// and the call stays behind. The error wraps [ErrUnderWay] if ctx ends before f is called.
func (c *Calls) Do(ctx context.Context, key string, f func(context.Context) error) error {
	done := make(chan struct{})
	for {
		earlier := c.hold(key, done)
		if earlier == nil {
			break
		}
		select {
		case <-earlier:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrUnderWay, context.Cause(ctx))
		}
	}
	result := make(chan error, 1) // of one, so that a call that stays behind ends
	go func() {
		defer c.release(key, done)
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
func (c *Calls) UnderWay(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[key] != nil
}

// Idle reports whether all calls have returned.
func (c *Calls) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held) == 0
}

// hold holds the key, or returns the channel of the call that does.
func (c *Calls) hold(key string, done chan struct{}) (earlier chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier := c.held[key]; earlier != nil {
		return earlier
	}
	if c.held == nil {
		c.held = map[string]chan struct{}{}
	}
	c.held[key] = done
	return nil
}

func (c *Calls) release(key string, done chan struct{}) {
	c.mu.Lock()
	delete(c.held, key)
	c.mu.Unlock()
	close(done)
}
