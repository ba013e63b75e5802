package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// pathChecks makes checks of paths of the host that can be ended, though a path may be on a file
// system that does not answer: the call to the kernel then stays behind, in a goroutine of its
// own. There is at most one for each path. nil: they are not counted.
type pathChecks struct {
	calls flow.Calls
	// before is called before each check, for tests.
	before func(path string)
}

func newPathChecks() *pathChecks { return &pathChecks{} }

// checkError is the error of a check, which is no error of its call.
type checkError struct{ error }

// do calls check with ctx and returns its error. If ctx ends before that, it does not wait for it.
func (c *pathChecks) do(ctx context.Context, path string, check func(context.Context) error) error {
	if c == nil {
		c = &pathChecks{}
	}
	err := c.calls.Do(ctx, filepath.Clean(path), func(ctx context.Context) error {
		if c.before != nil {
			c.before(path)
		}
		if err := check(ctx); err != nil {
			return checkError{err}
		}
		return nil
	})
	if failed := (checkError{}); errors.As(err, &failed) {
		return failed.error
	}
	if err != nil {
		return fmt.Errorf("checking %s: %w", path, err)
	}
	return nil
}
