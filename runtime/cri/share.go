package cri

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// shares merges concurrent runs with the same key into one. Unlike
// golang.org/x/sync/singleflight, a caller can give up, and no goroutine is started. The
// zero value is ready to use.
type shares[T any] struct {
	mu   sync.Mutex
	runs map[string]*sharedRun[T] // those that others can join
}

// sharedRun is a run in progress. Its results may be read when done is closed.
type sharedRun[T any] struct {
	callers int // guarded by shares.mu
	done    chan struct{}
	value   T
	err     error
	gaveUp  bool
}

// do runs f, or waits for another caller's run with the same key, until ctx ends. If
// that caller gives up, its result does not apply to the others: one of them runs f
// again. From the call of begin on, nobody joins the run; it returns the number of callers.
func (s *shares[T]) do(ctx context.Context, about, key string, f func(begin func() (callers int)) (T, error)) (none T, _ error) {
	for {
		s.mu.Lock()
		run, another := s.runs[key]
		if !another {
			run = &sharedRun[T]{done: make(chan struct{})}
			if s.runs == nil {
				s.runs = map[string]*sharedRun[T]{}
			}
			s.runs[key] = run
		}
		run.callers++
		s.mu.Unlock()
		if !another {
			s.lead(ctx, key, run, f)
			return run.value, run.err
		}
		select {
		case <-run.done:
			if !run.gaveUp {
				return run.value, run.err
			}
		case <-ctx.Done():
			return none, fmt.Errorf("%s: %w", about, ended(ctx))
		}
	}
}

// lead runs f and ends the run. A panic of f does not apply to the other callers, either.
func (s *shares[T]) lead(ctx context.Context, key string, run *sharedRun[T], f func(begin func() int) (T, error)) {
	run.err, run.gaveUp = errPanicked, true
	begin := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.runs[key] == run {
			delete(s.runs, key)
		}
		return run.callers
	}
	defer close(run.done)
	defer begin()
	run.value, run.err = f(begin)
	run.gaveUp = run.err != nil && ctx.Err() != nil
}

var errPanicked = errors.New("the call panicked")

// once is [shares.do] without a value.
func once(ctx context.Context, s *shares[struct{}], about, key string, f func() error) error {
	_, err := s.do(ctx, about, key, func(func() int) (struct{}, error) { return struct{}{}, f() })
	return err
}

// series makes runs one after the other. Those that come while one is in progress share the next
// one, which begins after their call.
type series[T any] struct {
	runs shares[T]
	busy chan struct{} // has one value while a run is in progress
}

func newSeries[T any]() *series[T] { return &series[T]{busy: make(chan struct{}, 1)} }

// do runs f when the run before has ended, or shares another caller's run. f is told whether others
// share it.
func (s *series[T]) do(ctx context.Context, about string, f func(shared bool) (T, error)) (T, error) {
	return s.runs.do(ctx, about, "", func(begin func() int) (none T, _ error) {
		select {
		case s.busy <- struct{}{}:
			defer func() { <-s.busy }()
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return none, ended(ctx)
		}
		return f(begin() > 1)
	})
}
