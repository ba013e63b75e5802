package fake

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
)

// Event is an event that a [Recorder] has received.
type Event struct {
	runtime.Event
	// At is when it was received.
	At time.Time
}

// String returns the event in one line, as in "Warning default/web BackOff: …".
func (e *Event) String() string {
	return fmt.Sprintf("%s %s/%s %s: %s", e.Type, e.Pod.Namespace, e.Pod.Name, e.Reason, e.Message)
}

// Recorder keeps events about pods. Its method Event is a [runtime.EventFunc] for
// the parts of an agent and for [Options].Event. The zero value is ready to use; it
// is safe for concurrent use.
type Recorder struct {
	cond cond.Cond

	mu     sync.Mutex
	events []Event
}

// Event records an event.
func (r *Recorder) Event(e runtime.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, Event{e, time.Now()})
	r.cond.Changed()
}

// Events returns the events about the target's pods, in order. The target's container
// and image are ignored.
func (r *Recorder) Events(t Target) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Container, t.Image = "", ""
	var out []Event
	for _, e := range r.events {
		if t.matches(e.Pod, "", "") {
			out = append(out, e)
		}
	}
	return out
}

// UntilEvent waits for an event with the reason about the target's pods, and returns the
// first one.
func (r *Recorder) UntilEvent(ctx context.Context, t Target, reason string) (Event, error) {
	var found Event
	err := r.cond.Until(ctx, func() bool {
		for _, e := range r.Events(t) {
			if e.Reason == reason {
				found = e
				return true
			}
		}
		return false
	}, func() string {
		var lines []string
		for _, e := range r.Events(t) {
			lines = append(lines, e.String())
		}
		return strings.Join(lines, ", ")
	})
	return found, err
}
