package pleg

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// health is the progress of the list call. It is safe for concurrent use.
type health struct {
	mu sync.Mutex
	// began is when Run began, zero while it is not under way.
	began time.Time
	// last is the end of the last list call that succeeded, zero before the first.
	last time.Time
	// due is when the list call after that one began, or is due.
	due time.Time
	// err is the error of the last list call, nil if it succeeded.
	err error
}

func (h *health) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = time.Now()
}

func (h *health) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = time.Time{}
}

// called notes the beginning of a list call.
func (h *health) called() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.Before(h.due) {
		h.due = now
	}
}

// succeeded notes the success of a list call. The next one is due after wait. It reports
// whether the call before it had failed.
func (h *health) succeeded(wait time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	again := h.err != nil
	h.last, h.err = time.Now(), nil
	h.due = h.last.Add(wait)
	return again
}

// failed notes the failure of a list call, and reports whether it is the first in a row.
func (h *health) failed(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.err == nil
	h.err = err
	return first
}

var (
	errNotRunning = errors.New("the pod lifecycle event generator is not running")
	errNoReply    = errors.New("the list call has not returned")
)

// check returns nil if Run is under way and a list call has succeeded within the
// threshold. If the next call is due later than after the period, the threshold is longer
// by the difference. The text of the error does not change while nothing happens: a node
// reports each change.
func (h *health) check(threshold, period time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.began.IsZero() {
		return errNotRunning
	}
	cause := h.err
	if cause == nil {
		cause = errNoReply
	}
	if h.last.IsZero() {
		return fmt.Errorf("no list of the runtime's pods has succeeded since the start at %s: %w",
			h.began.Format(time.RFC3339), cause)
	}
	threshold += max(0, h.due.Sub(h.last)-period)
	if time.Since(h.last) > threshold {
		return fmt.Errorf("no list of the runtime's pods has succeeded since %s, threshold is %s: %w",
			h.last.Format(time.RFC3339), threshold.Round(time.Millisecond), cause)
	}
	return nil
}
