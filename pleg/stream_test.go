package pleg

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var (
	errNoStream = errors.Join(errInjected, errors.ErrUnsupported)
	errBroken   = errors.New("broken")
)

// events is the event stream of a world. It is guarded by the world's lock.
type events struct {
	// refuses is what attempts to listen fail with; announces says that who listens is
	// told so at once, deaf that nothing is ever told.
	refuses   error
	announces bool
	deaf      bool
	// fate says what becomes of a hint: it comes once for each of the delays. nil: it
	// comes once, at once.
	fate func() []time.Duration
	// bare hints name no pod.
	bare bool
	// backlog is told to who listens next.
	backlog []runtime.Hint

	attempts []time.Time
	ear      *ear
}

// ear is who listens.
type ear struct {
	hints []runtime.Hint
	err   error
	// wake has room for one.
	wake chan struct{}
}

func (e *ear) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// tell has whoever listens told of each container and sandbox that the events are
// about. The world is locked.
func (w *world) tell(uid types.UID, about []Event) {
	ev, ear := &w.events, w.events.ear
	if ear == nil || ev.deaf {
		return
	}
	for _, e := range about {
		h := runtime.Hint{Pod: refOf(uid), ID: e.ContainerID.ID + e.SandboxID, Event: map[Type]runtime.HintEvent{
			ContainerStarted: runtime.HintStarted, ContainerDied: runtime.HintStopped, ContainerRemoved: runtime.HintDeleted,
			SandboxStarted: runtime.HintStarted, SandboxDied: runtime.HintStopped, SandboxRemoved: runtime.HintDeleted,
		}[e.Type]}
		if ev.bare {
			h.Pod = runtime.PodRef{}
		}
		delays := []time.Duration{0}
		if ev.fate != nil {
			delays = ev.fate()
		}
		for _, delay := range delays {
			if delay == 0 {
				ear.hear(h)
				continue
			}
			time.AfterFunc(delay, func() { w.do(func() { ear.hear(h) }) })
		}
	}
}

func (e *ear) hear(hints ...runtime.Hint) {
	e.hints = append(e.hints, hints...)
	e.poke()
}

// WatchEvents implements [runtime.EventSource].
func (w *world) WatchEvents(ctx context.Context, established func(), hint func(runtime.Hint)) error {
	e := &ear{wake: make(chan struct{}, 1)}
	var refused error
	announces := false
	w.do(func() {
		w.events.attempts = append(w.events.attempts, time.Now())
		if refused = w.events.refuses; refused == nil {
			e.hear(w.events.backlog...)
			w.events.backlog, w.events.ear = nil, e
			announces = w.events.announces
		}
	})
	if refused != nil {
		return refused
	}
	if announces {
		established()
	}
	for {
		select {
		case <-e.wake:
		case <-ctx.Done():
			w.do(func() {
				if w.events.ear == e {
					w.events.ear = nil
				}
			})
			return ctx.Err()
		}
		var hints []runtime.Hint
		var err error
		w.do(func() { hints, e.hints, err = e.hints, nil, e.err })
		for _, h := range hints {
			hint(h)
		}
		if err != nil {
			return err
		}
	}
}

// hint tells whoever listens.
func (w *world) hint(hints ...runtime.Hint) {
	w.do(func() { w.events.ear.hear(hints...) })
}

// breakStream ends the stream; later attempts fail with refuses.
func (w *world) breakStream(refuses error) {
	w.do(func() {
		w.events.refuses = refuses
		if ear := w.events.ear; ear != nil {
			ear.err = errBroken
			ear.poke()
		}
		w.events.ear = nil
	})
}

// attempts returns when somebody has tried to listen.
func (w *world) attempts() (at []time.Time) {
	w.do(func() { at = slices.Clone(w.events.attempts) })
	return at
}
