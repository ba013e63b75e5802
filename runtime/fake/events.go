package fake

import (
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxQueued is how many events wait for a listener, at most, unless
// [EventStream].Room says otherwise. One that is as far behind gets an error and has
// to listen again: the loss is told, not hidden.
const maxQueued = 10_000

// EventStream says how the runtime's stream of events treats those who listen. The
// zero value says at once that it stands, tells nothing of the time before, and cuts
// off who is 10 000 events behind. [Containerd] is another kind. A runtime that has
// no such stream at all is one [Options].Without GetContainerEvents.
type EventStream struct {
	// Keep is for how long events are kept while nobody listens, the newest 10 000 of
	// them. Who comes then gets them first, as old as they are. 0: they are not kept.
	Keep time.Duration
	// Room is how many events wait for a listener. When there is no room for more,
	// calls that make events return only when there is again: a slow listener holds up
	// the runtime. What containers do by themselves is not held up. 0: calls never
	// wait, and the listener is cut off.
	Room int
	// Unannounced has the stream send no header before its first event, so that
	// nobody knows when it stands.
	Unannounced bool
}

// Containerd is the stream of events of containerd 2: it keeps events for 5 minutes,
// has room for 100, and is not announced.
func Containerd() EventStream {
	return EventStream{Keep: 5 * time.Minute, Room: 100, Unannounced: true}
}

// subscription is one listener. Its fields are guarded by the service's mu.
type subscription struct {
	s     *service
	queue []*criv1.ContainerEventResponse
	// wake has room for one; it is full when there is something to look at.
	wake chan struct{}
	// err ends the stream once the queue is empty.
	err error
}

// kept is an event that nobody has listened to yet.
type kept struct {
	event *criv1.ContainerEventResponse
	since time.Time
}

// subscribe makes a listener, until ctx ends or its end is called.
func (s *service) subscribe(ctx context.Context) *subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := &subscription{s: s, wake: make(chan struct{}, 1)}
	if s.down {
		sub.err = unavailable()
		return sub
	}
	for _, k := range s.unheard {
		if time.Since(k.since) < s.opts.Events.Keep {
			sub.queue = append(sub.queue, k.event)
		}
	}
	s.unheard = nil
	s.subs[sub] = struct{}{}
	context.AfterFunc(ctx, sub.end)
	s.cond.Changed()
	return sub
}

// poke tells the listener to look. mu is held.
func (sub *subscription) poke() {
	select {
	case sub.wake <- struct{}{}:
	default: // it is told already
	}
}

// fail ends the subscription. mu is held.
func (sub *subscription) fail(err error) {
	if sub.err == nil {
		sub.err = err
	}
	delete(sub.s.subs, sub)
	sub.s.cond.Changed()
	sub.poke()
}

func (sub *subscription) end() {
	sub.s.mu.Lock()
	defer sub.s.mu.Unlock()
	delete(sub.s.subs, sub)
	sub.s.cond.Changed()
}

// wait returns when there is an event, and nil. It is called from one goroutine.
func (sub *subscription) wait(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return status.FromContextError(err).Err()
		}
		sub.s.mu.Lock()
		some, err := len(sub.queue) > 0, sub.err
		sub.s.mu.Unlock()
		if some {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-sub.wake:
		case <-ctx.Done():
		}
	}
}

// next waits for an event and takes it. It is called from one goroutine.
func (sub *subscription) next(ctx context.Context) (*criv1.ContainerEventResponse, error) {
	if err := sub.wait(ctx); err != nil {
		return nil, err
	}
	sub.s.mu.Lock()
	defer sub.s.mu.Unlock()
	ev := sub.queue[0]
	sub.queue[0] = nil
	sub.queue = sub.queue[1:]
	sub.s.cond.Changed()
	return ev, nil
}

// awaitRoom is how calls that have made an event wait for slow listeners.
func (s *service) awaitRoom(ctx context.Context) error {
	if s.opts.Events.Room == 0 {
		return nil
	}
	err := s.cond.Until(ctx, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for sub := range s.subs {
			if len(sub.queue) > s.opts.Events.Room {
				return false
			}
		}
		return true
	}, nil)
	if err != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return nil
}

// emit tells of a container, or of its sandbox if c is nil. mu is held.
func (s *service) emit(sb *sandbox, c *container, kind criv1.ContainerEventType) {
	s.cond.Changed()
	if s.down || len(s.subs) == 0 && len(s.evFaults) == 0 && len(s.overtaken) == 0 && s.opts.Events.Keep == 0 {
		return // nobody will ever see it
	}
	id, name, image := sb.id, "", ""
	if c != nil {
		id, name, image = c.id, c.name(), c.image()
	}
	fate := s.fateOf(sb.pod, name, image, kind)
	if fate.copies == 0 {
		return
	}
	ev := &criv1.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano()}
	if !fate.bare {
		ev.PodSandboxStatus = sb.status()
		for _, c := range sb.containers {
			ev.ContainersStatuses = append(ev.ContainersStatuses, c.status(s))
		}
	}
	events := slices.Repeat([]*criv1.ContainerEventResponse{ev}, fate.copies)
	switch {
	case fate.delay > 0:
		time.AfterFunc(fate.delay, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.send(events)
		})
	case fate.behind > 0:
		s.overtaken = append(s.overtaken, &overtaken{events, fate.behind})
	default:
		s.send(events)
		s.letFollow()
	}
}

// send hands events to all who listen. mu is held.
func (s *service) send(events []*criv1.ContainerEventResponse) {
	if s.down || s.closed {
		return
	}
	if len(s.subs) == 0 && s.opts.Events.Keep > 0 {
		now := time.Now()
		for _, ev := range events {
			s.unheard = append(s.unheard, kept{ev, now})
		}
		first := slices.IndexFunc(s.unheard, func(k kept) bool { return now.Sub(k.since) < s.opts.Events.Keep })
		s.unheard = s.unheard[max(first, len(s.unheard)-maxQueued):]
	}
	for sub := range s.subs {
		sub.queue = append(sub.queue, events...)
		if s.opts.Events.Room == 0 && len(sub.queue) > maxQueued {
			sub.queue = nil
			sub.fail(status.Error(codes.ResourceExhausted, "the listener is too far behind; events were lost"))
			continue
		}
		sub.poke()
	}
	s.cond.Changed()
}

// BreakEvents ends all streams of events with the error, as when the connection is
// lost, and returns how many there were. Events that a listener has not read yet are
// still delivered before. With nil the streams end without an error, as those of
// CRI-O do when its events are disabled.
func (r *Runtime) BreakEvents(err error) int {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	n := len(r.s.subs)
	for sub := range r.s.subs {
		sub.fail(cmp.Or(asStatus(err), io.EOF))
	}
	return n
}

// Listeners returns how many listen to the events, and how many events the slowest of
// them has not taken yet.
func (r *Runtime) Listeners() (n, behind int) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for sub := range r.s.subs {
		behind = max(behind, len(sub.queue))
	}
	return len(r.s.subs), behind
}

// UntilHeard returns when at least one listens to the events, and all who do have
// taken every event. That they have acted on them it does not say.
func (r *Runtime) UntilHeard(ctx context.Context) error {
	return r.Until(ctx, func() bool {
		n, behind := r.Listeners()
		return n > 0 && behind == 0
	})
}
