package fake

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
)

// Event is what a user would see of a pod.
type Event struct {
	Pod runtime.PodRef
	// Ref is the path of the part that the event is about, or "".
	Ref string
	// Type is "Normal" or "Warning".
	Type, Reason, Message string
	At                    time.Time
}

// String returns the event in one line, as in "Warning default/web BackOff: …".
func (e *Event) String() string {
	return fmt.Sprintf("%s %s/%s %s: %s", e.Type, e.Pod.Namespace, e.Pod.Name, e.Reason, e.Message)
}

// Recorder remembers events about pods: those of the client, as the Recorder of
// [Options].CRI, and with its method Pod those of the parts of an agent. Its zero value
// is ready; it is safe for concurrent use.
type Recorder struct {
	cond cond.Cond

	mu     sync.Mutex
	events []Event
}

var _ cri.Recorder = (*Recorder)(nil)

// Event implements [cri.Recorder].
func (r *Recorder) Event(pod runtime.PodRef, ref, eventType, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, Event{pod, ref, eventType, reason, message, time.Now()})
	r.cond.Changed()
}

// Pod is the function that an agent and its parts have as their option Event.
func (r *Recorder) Pod(pod *v1.Pod, eventType, reason, message string) {
	r.Event(runtime.RefOf(pod), "", eventType, reason, message)
}

// Events returns the events about the target's pods, in order. Its container and image
// do not count.
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

// UntilEvent returns when there is an event of that reason about the target's pods, and
// the first one.
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
