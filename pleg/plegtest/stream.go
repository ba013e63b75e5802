package plegtest

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// ErrBroken is returned by streams that [Runtime.BreakStream] has ended.
var ErrBroken = errors.New("the event stream is broken")

// Stream is the event stream of a [Runtime]. It has one listener at a time.
type Stream struct {
	// Refuses is returned by attempts to listen. nil: they succeed.
	Refuses error
	// Unannounced streams do not call established, as that of containerd.
	Unannounced bool
	// Silent streams report nothing.
	Silent bool
	// Delays returns, for each hint, the delays after which it is delivered; without any
	// it is lost. nil: each hint is delivered once, at once.
	Delays func() []time.Duration
	// Unnamed hints have an ID, but no pod.
	Unnamed bool
	// Backlog is delivered to the next listener.
	Backlog []runtime.Hint

	// Opened are the times of the attempts to listen.
	Opened []time.Time

	listener *listener
}

// listener is one call of WatchEvents.
type listener struct {
	hints []runtime.Hint
	err   error
	// wake has room for one: it is full when there are hints or an error.
	wake chan struct{}
}

func (l *listener) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Hint delivers hints to the listener, if there is one, whatever the settings of the
// stream.
func (s *Stream) Hint(hints ...runtime.Hint) {
	if s.listener != nil {
		s.listener.hints = append(s.listener.hints, hints...)
		s.listener.signal()
	}
}

// hintEvent returns the type of a hint about the event; "" for events that have no hint
// of their own.
func hintEvent(t pleg.Type) runtime.HintEvent {
	switch t {
	case pleg.ContainerStarted, pleg.SandboxStarted:
		return runtime.HintStarted
	case pleg.ContainerDied, pleg.SandboxDied:
		return runtime.HintStopped
	case pleg.ContainerRemoved, pleg.SandboxRemoved:
		return runtime.HintDeleted
	default:
		return ""
	}
}

// report delivers a hint for each event. mu is held.
func (r *Runtime) report(uid types.UID, events []pleg.Event) {
	s := &r.state.Stream
	l := s.listener
	if l == nil || s.Silent {
		return
	}
	for _, e := range events {
		h := runtime.Hint{Pod: Ref(uid), ID: e.ContainerID.ID + e.SandboxID, Event: hintEvent(e.Type)}
		if s.Unnamed {
			h.Pod = runtime.PodRef{}
		}
		delays := []time.Duration{0}
		if s.Delays != nil {
			delays = s.Delays()
		}
		deliver := func() {
			l.hints = append(l.hints, h)
			l.signal()
		}
		for _, delay := range delays {
			if delay == 0 {
				deliver()
			} else {
				time.AfterFunc(delay, func() { r.Do(func(*State) { deliver() }) })
			}
		}
	}
}

// WatchEvents implements [runtime.EventSource].
func (r *Runtime) WatchEvents(ctx context.Context, established func(), hint func(runtime.Hint)) error {
	l := &listener{wake: make(chan struct{}, 1)}
	var refused error
	var announced bool
	r.Do(func(s *State) {
		s.Stream.Opened = append(s.Stream.Opened, time.Now())
		if refused = s.Stream.Refuses; refused != nil {
			return
		}
		s.Stream.listener = l
		s.Stream.Hint(s.Stream.Backlog...)
		s.Stream.Backlog = nil
		announced = !s.Stream.Unannounced
	})
	if refused != nil {
		return refused
	}
	if announced && established != nil {
		established()
	}
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			r.Do(func(s *State) {
				if s.Stream.listener == l {
					s.Stream.listener = nil
				}
			})
			return ctx.Err()
		}
		var hints []runtime.Hint
		var err error
		r.Do(func(*State) { hints, l.hints, err = l.hints, nil, l.err })
		for _, h := range hints {
			hint(h)
		}
		if err != nil {
			return err
		}
	}
}

// Hint delivers hints to the listener, if there is one.
func (r *Runtime) Hint(hints ...runtime.Hint) {
	r.Do(func(s *State) { s.Stream.Hint(hints...) })
}

// BreakStream ends the stream with [ErrBroken]. Later attempts to listen return
// refuses; nil: they succeed.
func (r *Runtime) BreakStream(refuses error) {
	r.Do(func(s *State) {
		s.Stream.Refuses = refuses
		if l := s.Stream.listener; l != nil {
			l.err = ErrBroken
			l.signal()
		}
		s.Stream.listener = nil
	})
}

// Opened returns the times of the attempts to listen until now.
func (r *Runtime) Opened() (at []time.Time) {
	r.Do(func(s *State) { at = append(at, s.Stream.Opened...) })
	return at
}
