package cri

import (
	"context"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// once is the Do of the shares without a value.
func once(ctx context.Context, s *flow.Shares[struct{}], about, key string, f func() error) error {
	_, err := s.Do(ctx, about, key, func(func() int) (struct{}, error) { return struct{}{}, f() })
	return err
}

// series makes runs one after the other. Those that come while one is in progress share the next
// one, which begins after their call.
type series[T any] struct {
	runs flow.Shares[T]
	busy chan struct{} // has one value while a run is in progress
}

func newSeries[T any]() *series[T] { return &series[T]{busy: make(chan struct{}, 1)} }

// do runs f after the previous run has ended, or shares the run of another caller. The argument of f is true if
// others share it.
func (s *series[T]) do(ctx context.Context, about string, f func(shared bool) (T, error)) (T, error) {
	return s.runs.Do(ctx, about, "", func(begin func() int) (none T, _ error) {
		select {
		case s.busy <- struct{}{}:
			defer func() { <-s.busy }()
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return none, flow.Ended(ctx)
		}
		return f(begin() > 1)
	})
}
