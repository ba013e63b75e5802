package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var _ runtime.EventSource = (*Router)(nil)

// WatchEvents merges the event streams of all runtimes. If one has none, the Router has
// none either: a PLEG that relies on events would notice its changes late. If one breaks,
// all end.
func (r *Router) WatchEvents(ctx context.Context, established func(), hint func(runtime.Hint)) error {
	var sources []runtime.EventSource
	err := r.each(func(rt runtime.Runtime) error {
		source, ok := runtime.Optional[runtime.EventSource](rt)
		if !ok {
			return fmt.Errorf("a %T has no event stream: %w", rt, errors.ErrUnsupported)
		}
		sources = append(sources, source)
		return nil
	})
	if err != nil {
		return err
	}
	var (
		mu     sync.Mutex // hint and established are called by one goroutine at a time
		opened int
	)
	g, ctx := errgroup.WithContext(ctx)
	for _, source := range sources {
		g.Go(func() error {
			return source.WatchEvents(ctx, func() {
				mu.Lock()
				defer mu.Unlock()
				if opened++; opened == len(sources) && established != nil {
					established()
				}
			}, func(h runtime.Hint) {
				mu.Lock()
				defer mu.Unlock()
				hint(h)
			})
		})
	}
	return g.Wait()
}
