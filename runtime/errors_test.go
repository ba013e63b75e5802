package runtime_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestWithoutWaits(t *testing.T) {
	failure, wait := errors.New("broken"), &runtime.WaitError{Reason: "WaitingForPort", Message: "not plugged in"}
	terminal := &runtime.TerminalError{Reason: "Denied"}
	for name, test := range map[string]struct {
		err, failure error
		waits        bool
	}{
		"nil":                   {},
		"failure":               {err: failure, failure: failure},
		"wait":                  {err: wait, waits: true},
		"wrapped":               {err: fmt.Errorf("pod: %w", fmt.Errorf("container: %w", wait)), waits: true},
		"joined waits":          {err: fmt.Errorf("pod: %w", errors.Join(wait, fmt.Errorf("again: %w", wait))), waits: true},
		"joined with a failure": {err: errors.Join(wait, failure), failure: errors.Join(failure), waits: true},
		"of a panic":            {err: &runtime.PanicError{Value: wait}, failure: &runtime.PanicError{Value: wait}},
		"terminal":              {err: errors.Join(terminal, wait), failure: errors.Join(terminal), waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			gotWait, gotFailure := runtime.WithoutWaits(test.err)
			assert.Equal(t, test.failure, gotFailure)
			assert.Equal(t, test.waits, gotWait != nil)
		})
	}
	wrapped := fmt.Errorf("pod: %w", errors.Join(wait, failure))
	_, got := runtime.WithoutWaits(wrapped)
	assert.Equal(t, wrapped, got, "the context of a failure stays")
}
