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
	// began is when Run was called; zero when it is not under way.
	began time.Time
	// last is the end of the last list call that succeeded; zero before there was
	// one.
	last time.Time
	// due is when the list call after that one began, or is to begin.
	due time.Time
	// err is what the last list call failed with, nil if it succeeded.
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

// called notes that a list call begins.
func (h *health) called() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.Before(h.due) {
		h.due = now
	}
}

// succeeded notes a success, after which the next list call is to begin after wait,
// and reports whether it ends a row of failures.
func (h *health) succeeded(wait time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	again := h.err != nil
	h.last, h.err = time.Now(), nil
	h.due = h.last.Add(wait)
	return again
}

// failed notes a failure, and reports whether it begins a row of them.
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

// check returns nil if Run is under way and the last list call that succeeded is not
// longer ago than the threshold. That counts from the success where the next call
// is due after the period, and from as much later as it is due later than that: a
// generator that relists rarely is not ill for it.
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
	now := time.Now()
	if h.last.IsZero() {
		return fmt.Errorf("no list of the runtime's pods has succeeded since the start %s ago: %w",
			now.Sub(h.began).Round(time.Millisecond), cause)
	}
	threshold += max(0, h.due.Sub(h.last)-period)
	if silent := now.Sub(h.last); silent > threshold {
		return fmt.Errorf("no list of the runtime's pods has succeeded for %s, threshold is %s: %w",
			silent.Round(time.Millisecond), threshold.Round(time.Millisecond), cause)
	}
	return nil
}
