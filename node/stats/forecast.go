package stats

import (
	"context"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// forecast expects the next caller of a value. It counts only the first caller of each read,
// because the others share it.
type forecast struct {
	// caller before, and the time from the one before it.
	at  time.Time
	gap time.Duration
	// next receives when the next caller is expected, and the zero time if none is. It holds one,
	// the newest.
	next chan time.Time
}

const (
	// farthest is the longest interval for which a caller is expected. Prometheus scrapes
	// every minute by default.
	farthest = 2 * time.Minute
	// margin is how much earlier than needed a read begins. The intervals of a scraper vary by
	// some milliseconds.
	margin = 200 * time.Millisecond
)

// caller records a caller. The next one is expected if the last two intervals differ by no more
// than a tenth. It is not called twice at the same time.
func (f *forecast) caller(now time.Time) {
	gap := now.Sub(f.at)
	regular := gap <= farthest && (gap-f.gap).Abs() <= gap/10
	f.at, f.gap = now, gap
	select {
	case <-f.next:
	default:
	}
	if regular {
		f.next <- now.Add(gap)
	} else {
		f.next <- time.Time{}
	}
}

// run reads the value for callers that are expected, until ctx ends.
func (s *shared[T]) run(ctx context.Context) {
	var due <-chan time.Time
	for {
		select {
		case next := <-s.forecast.next:
			due = nil
			if !next.IsZero() {
				due = time.After(time.Until(next) - s.ahead())
			}
		case <-due:
			due = nil
			if wait := s.prepare(ctx); wait > 0 {
				due = time.After(wait)
			}
		case <-ctx.Done():
			return
		}
	}
}

// ahead returns how long before an expected caller a read begins: twice what the last one took, so
// that the value is there, and at most half a period, so that it is recent.
func (s *shared[T]) ahead() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	ahead := margin
	if s.last != nil {
		ahead += 2 * s.last.took
	}
	return min(ahead, s.period/2)
}

// prepare reads the value. If the period of the last read is not over, prepare returns the rest of it.
func (s *shared[T]) prepare(ctx context.Context) (wait time.Duration) {
	s.mu.Lock()
	if s.last != nil {
		wait = time.Until(s.last.began.Add(s.period))
	}
	s.mu.Unlock()
	if wait <= 0 {
		_ = runtime.Recover(func() error { _, err := s.next(ctx); return err }) // the callers read it themselves
	}
	return max(wait, 0)
}
