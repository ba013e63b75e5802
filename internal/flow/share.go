package flow

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Shares merges concurrent runs with the same key into one. Unlike
// golang.org/x/sync/singleflight, a caller can give up, and no goroutine is started. The
// zero value is ready to use.
type Shares[T any] struct {
	mu   sync.Mutex
	runs map[string]*sharedRun[T] // those that others can join
}

// sharedRun is a run in progress. Its results may be read when done is closed.
type sharedRun[T any] struct {
	callers int // guarded by Shares.mu
	done    chan struct{}
	value   T
	err     error
	gaveUp  bool
}

// Do runs f, or waits for another caller's run with the same key, until ctx ends. If
// that caller gives up or panics, its result does not apply to the others: one of them runs f
// again. After f has called begin, no caller joins the run. begin returns
// the number of callers.
func (s *Shares[T]) Do(ctx context.Context, about, key string, f func(begin func() (callers int)) (T,
	error)) (none T, _ error) {
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
			return none, fmt.Errorf("%s: %w", about, Ended(ctx))
		}
	}
}

// lead runs f and ends the run.
func (s *Shares[T]) lead(ctx context.Context, key string, run *sharedRun[T], f func(begin func() int) (T, error)) {
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

// Ended returns the error of a context that has ended, with its cause if that is different.
func Ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
