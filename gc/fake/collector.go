package fake

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/calls"
)

// The methods of [Collector]. They are about no pod.
const (
	Run  = "Run"
	Kick = "Kick"
)

// Collector is a [gc.GarbageCollector] that records its calls and removes nothing. It
// is safe for concurrent use; the zero value is ready.
type Collector struct {
	calls.Log
	ran atomic.Bool
}

var _ gc.GarbageCollector = (*Collector)(nil)

// Run implements [gc.GarbageCollector].
func (c *Collector) Run(ctx context.Context) error {
	return c.Do(ctx, calls.Call{Method: Run}, func() error {
		if !c.ran.CompareAndSwap(false, true) {
			return fmt.Errorf("gc/fake: %w", runtime.ErrAlreadyRunning)
		}
		<-ctx.Done()
		return nil
	})
}

// Kick implements [gc.GarbageCollector].
func (c *Collector) Kick() { c.Note(calls.Call{Method: Kick}, nil) }
