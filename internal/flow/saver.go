package flow

import (
	"cmp"
	"context"
	"time"

	"github.com/go-logr/logr"
)

// Saver writes a state after it has changed: dirty, wait, save, back off.
type Saver struct {
	// Dirty holds a token while there is something to save.
	Dirty Signal
	// Wait is how long changes are collected before a save.
	Wait time.Duration
	// Save writes what has changed. The fields below are for one that may fail.
	Save func() error
	// Retry returns the delay before the next save after so many failures in a row, such as [Backoff.After]. A change
	// is saved before. If that fails, too, it does not count: many changes do not make the delay long.
	Retry func(failures int) time.Duration
	// Log receives the message Failing with the first error of failures in a row, Saved after the save that ends them,
	// and Unsaved with the error of the last save. The default of Unsaved is Failing.
	Log                     logr.Logger
	Failing, Saved, Unsaved string
}

// Run saves after each change until ctx ends. Then it saves a last time, if that is due.
func (s Saver) Run(ctx context.Context) {
	for {
		s.Flush(ctx)
		select {
		case <-ctx.Done():
			s.Flush(ctx)
			return
		case <-s.Dirty:
			s.Dirty.Notify() // Flush takes it
		}
	}
}

// Flush returns at once if there is nothing to save. Otherwise it saves, again after failures, until it has succeeded
// or ctx ends. Then it saves a last time.
func (s Saver) Flush(ctx context.Context) {
	for failures, dirty := 0, s.taken(); dirty || failures > 0; dirty = s.taken() {
		if dirty && s.Wait > 0 {
			Sleep(ctx, s.Wait)
			s.taken() // the save has this change, too
		}
		last := ctx.Err() != nil
		switch err := s.Save(); {
		case err == nil:
			if failures > 0 {
				s.Log.Info(s.Saved)
			}
			return
		case last:
			s.Log.Error(err, cmp.Or(s.Unsaved, s.Failing))
			return
		case failures == 0:
			s.Log.Error(err, s.Failing)
		}
		if failures == 0 || !dirty {
			failures++
		}
		retry := time.NewTimer(s.Retry(failures))
		select {
		case <-ctx.Done():
		case <-retry.C:
		case <-s.Dirty:
			s.Dirty.Notify()
		}
		retry.Stop()
	}
}

// taken takes the token, and reports whether there was one.
func (s Saver) taken() bool {
	select {
	case <-s.Dirty:
		return true
	default:
		return false
	}
}
