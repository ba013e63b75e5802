package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Hinted is a [pleg.Generator] of one's own: a [pleg.Generic] that relists when the
// runtime's event stream reports anything. It does not use the content of the events, so
// lost and repeated ones do no harm.
type Hinted struct {
	*pleg.Generic
	Events runtime.EventSource

	ran atomic.Bool
}

// Run implements [pleg.Generator].
func (h *Hinted) Run(ctx context.Context) error {
	if h.ran.Swap(true) {
		return runtime.ErrAlreadyRunning // before a second stream takes the events of the first
	}
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { h.watch(watching) })
	err := h.Generic.Run(ctx)
	stop()
	watch.Wait()
	return err
}

// watch keeps the event stream open until ctx ends.
func (h *Hinted) watch(ctx context.Context) {
	for ctx.Err() == nil {
		_ = h.Events.WatchEvents(ctx, h.Relist, func(runtime.Hint) { h.Relist() })
		h.Relist() // for what happens before the stream is open again
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}
