package flow

import (
	"context"
	"time"
)

// Sleep waits, and reports whether the time has passed before ctx ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Repeat calls run until it returns nil or ctx ends. After an error it calls failed with the delay
// before the next call. A call that lasted Max or longer ends the row of failures before it: the
// delay is Min again.
func (e Backoff) Repeat(ctx context.Context, run func() error, failed func(err error, retryIn time.Duration)) {
	for failures := 1; ; failures++ {
		began := time.Now()
		err := run()
		if err == nil || ctx.Err() != nil {
			return
		}
		if time.Since(began) >= e.Max {
			failures = 1
		}
		delay := e.After(failures)
		failed(err, delay)
		if !Sleep(ctx, delay) {
			return
		}
	}
}
