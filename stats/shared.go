package stats

import (
	"context"
	"errors"
	"sync"
	"time"
)

// shared is a value that is read on request, at most once a period, for all callers. For callers
// at regular intervals, run reads it shortly before the next one.
type shared[T any] struct {
	// read reads the value. It is not called twice at the same time.
	read func(ctx context.Context) (T, error)
	// period is how long a value, or an error, is returned again. timeout bounds a read.
	period, timeout time.Duration

	mu sync.Mutex
	// last is the last completed read, nil before the first; running is the one in progress.
	last, running *reading[T]
	forecast      forecast
}

func newShared[T any](period, timeout time.Duration, read func(ctx context.Context) (T, error)) *shared[T] {
	return &shared[T]{read: read, period: period, timeout: timeout, forecast: forecast{next: make(chan time.Time, 1)}}
}

// reading is a read. All but done may be read when done is closed.
type reading[T any] struct {
	done  chan struct{}
	value T
	err   error
	// began is when it began, and took its duration.
	began time.Time
	took  time.Duration
	// used means that a caller has asked for it. shared.mu guards it.
	used bool
	// gaveUp means that its caller gave up, so that the error is not that of others.
	gaveUp bool
}

// get returns the value. The first caller reads it in its own goroutine, and the others wait
// for it; if that caller gives up, one of them reads it again.
func (s *shared[T]) get(ctx context.Context) (T, error) {
	for {
		run, mine := s.current()
		if mine {
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

// current returns the last read if it is not older than the period, else the one in progress. If
// there is none, it returns a new one, and mine is true: the caller has to lead it.
func (s *shared[T]) current() (run *reading[T], mine bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.last != nil && now.Sub(s.last.began) < s.period:
		run = s.last
	case s.running != nil:
		run = s.running
	default:
		run, mine = s.begin(now), true
	}
	if !run.used {
		run.used = true
		s.forecast.caller(now)
	}
	return run, mine
}

// begin returns a new read in progress. s.mu is held.
func (s *shared[T]) begin(now time.Time) *reading[T] {
	s.running = &reading[T]{done: make(chan struct{}), began: now}
	return s.running
}

var errPanicked = errors.New("reading the usage panicked")

func (s *shared[T]) lead(ctx context.Context, run *reading[T]) {
	run.err, run.gaveUp = errPanicked, true
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running = nil
		run.took = time.Since(run.began)
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
