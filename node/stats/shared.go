package stats

import (
	"context"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// shared is a value that is read on request, at most once a period, for all callers. For callers
// at regular intervals, run reads it shortly before the next one.
type shared[T any] struct {
	// read reads the value. It is not called twice at the same time.
	read func(ctx context.Context) (T, error)
	// period is how long a value, or an error, is returned again. timeout bounds a read.
	period, timeout time.Duration

	reads flow.Shares[*reading[T]]

	mu sync.Mutex
	// last is the last completed read, nil before the first.
	last *reading[T]
	// used means that a caller has asked for the next read.
	used     bool
	forecast forecast
}

func newShared[T any](period, timeout time.Duration, read func(ctx context.Context) (T, error)) *shared[T] {
	return &shared[T]{read: read, period: period, timeout: timeout, forecast: forecast{next: make(chan time.Time, 1)}}
}

// reading is a completed read.
type reading[T any] struct {
	value T
	err   error
	// began is when it began, and took its duration.
	began time.Time
	took  time.Duration
	// used means that a caller has asked for it. shared.mu guards it.
	used bool
}

// get returns the value. The first caller reads it in its own goroutine, and the others wait
// for it; if that caller gives up, one of them reads it again.
func (s *shared[T]) get(ctx context.Context) (none T, _ error) {
	now := time.Now()
	s.mu.Lock()
	run, used := s.last, &s.used
	if s.fresh(now) {
		used = &run.used
	} else {
		run = nil
	}
	if !*used {
		*used = true
		s.forecast.caller(now)
	}
	s.mu.Unlock()
	if run == nil {
		var err error
		if run, err = s.next(ctx); err != nil {
			return none, err
		}
	}
	return run.value, run.err
}

// fresh reports whether the last read is not older than the period. s.mu is held.
func (s *shared[T]) fresh(now time.Time) bool {
	return s.last != nil && now.Sub(s.last.began) < s.period
}

// next returns the read in progress, or one that has ended meanwhile. If there is none, it reads.
func (s *shared[T]) next(ctx context.Context) (*reading[T], error) {
	return s.reads.Do(ctx, "reading the usage", "", func(func() int) (*reading[T], error) {
		run := &reading[T]{began: time.Now()}
		s.mu.Lock()
		last, fresh := s.last, s.fresh(run.began)
		s.mu.Unlock()
		if fresh {
			return last, nil
		}
		rctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		run.value, run.err = s.read(rctx)
		run.took = time.Since(run.began)
		if ctx.Err() != nil { // something may be missing in the value
			return nil, context.Cause(ctx)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last, run.used, s.used = run, s.used, false
		return run, nil
	})
}
