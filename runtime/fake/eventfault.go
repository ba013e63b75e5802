package fake

import (
	"slices"
	"time"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// EventFault is something that goes wrong with the events that the runtime sends
// to those who listen. The state that calls report is not touched. Of faults that
// meet the same event, a loss wins, copies add up, and of delays the longest counts.
type EventFault struct {
	// Target that the event is about. Events of sandboxes have no container.
	Target Target
	// Only this kind of event; nil stands for all.
	Kind *criv1.ContainerEventType
	// Skip and Times as in [Fault].
	Skip, Times int

	// Lose drops the event. Without a target the stream stands and is silent.
	Lose bool
	// Copies is how many times more than once the event is sent.
	Copies int
	// Delay is how much later the event is sent; others overtake it. What it tells is
	// as of the time when it was due.
	Delay time.Duration
	// Behind has the event overtaken by the next so many that are sent without a
	// delay, and sent right after them; it is never sent if fewer follow. With a Delay
	// it does not count.
	Behind int
	// Bare leaves the statuses of sandbox and containers out, as containerd does if
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
	// by is how many are still to be sent before.
	by int
}

// InjectEvents has events meet the fault from now on, until remove is called.
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

// fateOf finds the faults that an event meets. mu is held.
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

// letFollow sends what was held back, now that one more event has gone before it. mu
// is held.
func (s *service) letFollow() {
	s.overtaken = slices.DeleteFunc(s.overtaken, func(o *overtaken) bool {
		if o.by--; o.by == 0 {
			s.send(o.events)
		}
		return o.by == 0
	})
}
