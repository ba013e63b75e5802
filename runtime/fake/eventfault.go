package fake

import (
	"slices"
	"time"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// EventFault is a fault of the event stream. The state that calls report is not
// affected. When several faults match an event, a loss wins, copies add up, and the
// longest delay applies.
type EventFault struct {
	// Target of the event. Events of sandboxes have no container.
	Target Target
	// Kind restricts the fault to one kind of event; nil means all.
	Kind *criv1.ContainerEventType
	// Skip and Times as in [Fault].
	Skip, Times int

	// Lose drops the event. With an empty target and kind, the stream stays open and
	// silent.
	Lose bool
	// Copies is the number of additional times that the event is sent.
	Copies int
	// Delay is the time by which the event is sent later; others overtake it. Its
	// content is that of the time when it was due.
	Delay time.Duration
	// Behind sends the event after the next so many events that have no delay, and
	// never if fewer follow. It is ignored with a Delay.
	Behind int
	// Bare omits the statuses of the sandbox and the containers, as containerd does when
	// it cannot find them.
	Bare bool
}

type eventFault struct {
	EventFault
	seen int
}

// overtaken is an event that is held back until others were sent.
type overtaken struct {
	events []*criv1.ContainerEventResponse
	// by is the number of events that are still to be sent before it.
	by int
}

// InjectEvents applies the fault to events from now on, until remove is called.
func (r *Runtime) InjectEvents(f EventFault) (remove func()) {
	s, in := r.s, &eventFault{EventFault: f}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evFaults = append(s.evFaults, in)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.evFaults = slices.DeleteFunc(s.evFaults, func(f *eventFault) bool { return f == in })
	}
}

// fate is what happens to an event.
type fate struct {
	copies int // 0: it is lost
	delay  time.Duration
	behind int
	bare   bool
}

// fateOf returns the combined effect of all faults that match an event. mu is held.
func (s *service) fateOf(pod runtime.PodRef, container, image string, kind criv1.ContainerEventType) fate {
	out := fate{copies: 1}
	for _, f := range s.evFaults {
		if f.Kind != nil && *f.Kind != kind || !f.Target.matches(pod, container, image) {
			continue
		}
		f.seen++
		switch {
		case f.seen <= f.Skip || f.Times > 0 && f.seen > f.Skip+f.Times:
		case f.Lose:
			return fate{}
		default:
			out.copies += f.Copies
			out.delay, out.behind = max(out.delay, f.Delay), max(out.behind, f.Behind)
			out.bare = out.bare || f.Bare
		}
	}
	return out
}

// letFollow sends the events that were held back for the one just sent. mu is held.
func (s *service) letFollow() {
	s.overtaken = slices.DeleteFunc(s.overtaken, func(o *overtaken) bool {
		if o.by--; o.by == 0 {
			s.send(o.events)
		}
		return o.by == 0
	})
}
