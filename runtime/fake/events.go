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

// maxQueued is the number of events that wait for one listener, at most, unless
// [EventStream].Buffer is set. The stream of a listener that is further behind ends with
// an error, so that the loss of events is visible.
const maxQueued = 10_000

// EventStream is the quality of the runtime's event stream. With the zero value the
// stream announces itself by a header at once, has no events from before, and ends for
// listeners that are 10 000 events behind. [Containerd] returns another kind. For a
// runtime without event stream put GetContainerEvents into [Options].Without.
type EventStream struct {
	// Keep is how long events are kept while there is no listener, the newest 10 000 of
	// them. The next listener receives them first. 0: they are not kept.
	Keep time.Duration
	// Buffer is the number of events that can wait for a listener. While one has more, calls
	// that cause events do not return: a slow listener blocks the runtime. Exits of
	// containers are not blocked. 0: calls never wait, and slow listeners are cut off.
	Buffer int
	// Unannounced streams send no header before their first event, so that a client
	// cannot detect when they are established.
	Unannounced bool
}

// Containerd returns the event stream of containerd 2: it keeps events for 5 minutes,
// has room for 100, and is not announced.
func Containerd() EventStream {
	return EventStream{Keep: 5 * time.Minute, Buffer: 100, Unannounced: true}
}

// subscription is one listener. Its fields are guarded by the service's mu.
type subscription struct {
	s     *service
	queue []*criv1.ContainerEventResponse
	// wake has room for one; it is full when queue or err have changed.
	wake chan struct{}
	// err ends the stream once the queue is empty.
	err error
}

// kept is an event from a time without listeners.
type kept struct {
	event *criv1.ContainerEventResponse
	since time.Time
}

// subscribe adds a listener until ctx ends or its end method is called.
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

// poke wakes the listener. mu is held.
func (sub *subscription) poke() {
	select {
	case sub.wake <- struct{}{}:
	default: // it will wake up already
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

// wait returns nil when there is an event, or the error that ends the stream. It is
// called from one goroutine.
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

// awaitRoom makes a call that has caused an event wait for slow listeners.
func (s *service) awaitRoom(ctx context.Context) error {
	if s.opts.Events.Buffer == 0 {
		return nil
	}
	err := s.cond.Until(ctx, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for sub := range s.subs {
			if len(sub.queue) > s.opts.Events.Buffer {
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

// emit sends an event about a container, or about its sandbox if c is nil. mu is held.
func (s *service) emit(sb *sandbox, c *container, kind criv1.ContainerEventType) {
	s.cond.Changed()
	if s.down || len(s.subs) == 0 && len(s.evFaults) == 0 && len(s.overtaken) == 0 && s.opts.Events.Keep == 0 {
		return // it can have no effect
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

// send queues events for all listeners. mu is held.
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
		if s.opts.Events.Buffer == 0 && len(sub.queue) > maxQueued {
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

// Listeners returns the number of event streams, and the number of events that the
// slowest of their readers has not read yet.
func (r *Runtime) Listeners() (n, behind int) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for sub := range r.s.subs {
		behind = max(behind, len(sub.queue))
	}
	return len(r.s.subs), behind
}

// UntilEventsRead returns when there is at least one event stream, and every event has
// been read from all of them. The readers may not have acted on the events yet.
func (r *Runtime) UntilEventsRead(ctx context.Context) error {
	return r.Until(ctx, func() bool {
		n, behind := r.Listeners()
		return n > 0 && behind == 0
	})
}
