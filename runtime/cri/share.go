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
type shares struct {
	mu   sync.Mutex
	runs map[string]*sharedRun
}

// sharedRun is a run in progress. Its results may be read when done is closed.
type sharedRun struct {
	done   chan struct{}
	err    error
	gaveUp bool
}

// do runs f, or waits for another caller's run with the same key, until ctx ends. If
// that caller gives up, its result does not apply to the others: one of them runs f
// again.
func (s *shares) do(ctx context.Context, about, key string, f func() error) error {
	for {
		s.mu.Lock()
		run, another := s.runs[key]
		if !another {
			run = &sharedRun{done: make(chan struct{})}
			if s.runs == nil {
				s.runs = map[string]*sharedRun{}
			}
			s.runs[key] = run
		}
		s.mu.Unlock()
		if !another {
			return s.lead(ctx, key, run, f)
		}
		select {
		case <-run.done:
			if run.err == nil || !run.gaveUp {
				return run.err
			}
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", about, ended(ctx))
		}
	}
}

// lead runs f and ends the run. A panic of f does not apply to the other callers, either.
func (s *shares) lead(ctx context.Context, key string, run *sharedRun, f func() error) error {
	run.err, run.gaveUp = errPanicked, true
	defer func() {
		s.mu.Lock()
		delete(s.runs, key)
		s.mu.Unlock()
		close(run.done)
	}()
	run.err = f()
	run.gaveUp = ctx.Err() != nil
	return run.err
}

var errPanicked = errors.New("the call panicked")
