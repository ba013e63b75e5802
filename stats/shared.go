package stats

import (
	"context"
	"errors"
	"sync"
	"time"
)

// shared is a value that is read on request, at most once a period, for all callers.
type shared[T any] struct {
	// read reads the value. It is not called twice at the same time.
	read func(ctx context.Context) (T, error)
	// period is how long a value, or an error, is returned again. timeout bounds a read.
	period, timeout time.Duration

	mu sync.Mutex
	// last is the last completed read, nil before the first; running is the one in progress.
	last, running *reading[T]
}

// reading is a read. All but done may be read when done is closed.
type reading[T any] struct {
	done  chan struct{}
	value T
	err   error
	began time.Time
	// gaveUp means that its caller gave up, so that the error is not that of others.
	gaveUp bool
}

// get returns the value. The first caller reads it in its own goroutine, and the others wait
// for it; if that caller gives up, one of them reads it again.
func (s *shared[T]) get(ctx context.Context) (T, error) {
	for {
		s.mu.Lock()
		if s.last != nil && time.Since(s.last.began) < s.period {
			defer s.mu.Unlock()
			return s.last.value, s.last.err
		}
		run, another := s.running, s.running != nil
		if !another {
			run = &reading[T]{done: make(chan struct{}), began: time.Now()}
			s.running = run
		}
		s.mu.Unlock()
		if !another {
			s.lead(ctx, run)
			return run.value, run.err
		}
		select {
		case <-run.done:
			if !run.gaveUp {
				return run.value, run.err
			}
		case <-ctx.Done():
			var none T
			return none, context.Cause(ctx)
		}
	}
}

var errPanicked = errors.New("reading the usage panicked")

func (s *shared[T]) lead(ctx context.Context, run *reading[T]) {
	run.err, run.gaveUp = errPanicked, true
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running = nil
		if !run.gaveUp {
			s.last = run
		}
		close(run.done)
	}()
	rctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	run.value, run.err = s.read(rctx)
	if run.gaveUp = ctx.Err() != nil; run.gaveUp { // and something may be missing in the value
		run.err = context.Cause(ctx)
	}
}
