package volume

import (
	"context"
	"fmt"
)

// pathChecks makes checks of paths of the host that can be ended, though a path may be on a file
// system that does not answer: the call to the kernel then stays behind, in a goroutine of its
// own. There is at most one for each path. nil: they are not counted.
type pathChecks struct {
	under *pathLocks
	// before is called before each check, for tests.
	before func(path string)
}

func newPathChecks() *pathChecks { return &pathChecks{under: newPathLocks()} }

// do calls check with ctx and returns its error. If ctx ends before that, it does not wait for it.
func (c *pathChecks) do(ctx context.Context, path string, check func(context.Context) error) error {
	if c == nil {
		c = &pathChecks{}
	}
	unlock, err := c.under.lock(ctx, path)
	if err != nil {
		return fmt.Errorf("checking %s, while an earlier check is under way: %w", path, err)
	}
	done := make(chan error, 1)
	go func() {
		defer unlock()
		if c.before != nil {
			c.before(path)
		}
		done <- check(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("checking %s: %w", path, context.Cause(ctx))
	}
}
