package fake

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/calls"
)

// The methods of [Collector]. Only CollectPod is about a pod.
const (
	Run          = "Run"
	Kick         = "Kick"
	CollectPod   = "CollectPod"
	DeleteUnused = "DeleteUnused"
	Changed      = "Changed"
)

// Collector is a [gc.Collector] that records its calls and removes nothing. It
// is safe for concurrent use; the zero value is ready.
type Collector struct {
	calls.Log
	ran atomic.Bool
}

var _ gc.Collector = (*Collector)(nil)

// Run implements [gc.Collector].
func (c *Collector) Run(ctx context.Context) error {
	return c.Do(ctx, calls.Call{Method: Run}, func() error {
		if !c.ran.CompareAndSwap(false, true) {
			return fmt.Errorf("gc/fake: %w", runtime.ErrAlreadyRunning)
		}
		<-ctx.Done()
		return nil
	})
}

// Kick implements [gc.Collector].
func (c *Collector) Kick() { c.Note(calls.Call{Method: Kick}, nil) }

// CollectPod implements [gc.Collector].
func (c *Collector) CollectPod(status *runtime.PodStatus) {
	c.Note(calls.Call{Method: CollectPod, Pods: []runtime.PodRef{status.PodRef}}, nil)
}

// DeleteUnused implements [gc.Collector].
func (c *Collector) DeleteUnused(ctx context.Context) error {
	return c.Do(ctx, calls.Call{Method: DeleteUnused}, func() error { return nil })
}

// Preview implements [gc.Collector]. Nothing is there.
func (c *Collector) Preview(ctx context.Context) (p gc.Preview, err error) {
	return p, c.Do(ctx, calls.Call{Method: Preview}, func() error { return nil })
}

// Changed implements [gc.Collector].
func (c *Collector) Changed() { c.Note(calls.Call{Method: Changed}, nil) }
