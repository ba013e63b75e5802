package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/pleg"
)

// Hinted is a [pleg.Generator]: Generic, and a listener that tells it when to look.
// What events say is not believed, so lost and doubled ones do no harm.
type Hinted struct {
	*pleg.Generic
	Events criv1.RuntimeServiceClient
}

// Run implements [pleg.Generator].
func (h *Hinted) Run(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.Generic.Run(gctx) })
	g.Go(func() error {
		for gctx.Err() == nil {
			h.listen(gctx)
			h.Relist() // for what happened while nobody listened
			select {
			case <-time.After(time.Second):
			case <-gctx.Done():
			}
		}
		return nil
	})
	return g.Wait()
}

// listen returns when the stream breaks.
func (h *Hinted) listen(ctx context.Context) {
	stream, err := h.Events.GetContainerEvents(ctx, &criv1.GetEventsRequest{})
	for err == nil {
		h.Relist()
		_, err = stream.Recv()
	}
}
