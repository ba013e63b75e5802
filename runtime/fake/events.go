package fake

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxQueued is how many events wait for a listener, at most. One that is as far
// behind gets an error and has to listen again: the loss is told, not hidden.
const maxQueued = 10_000

// subscription is one listener. Its fields are guarded by the service's mu.
type subscription struct {
	s     *service
	queue []*criv1.ContainerEventResponse
	// wake has room for one; it is full when there is something to look at.
	wake chan struct{}
	// err ends the stream once the queue is empty.
	err error
}

func (s *service) subscribe() *subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := &subscription{s: s, wake: make(chan struct{}, 1)}
	if s.down {
		sub.err = unavailable()
	} else {
		s.subs[sub] = struct{}{}
	}
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
	sub.poke()
}

func (sub *subscription) end() {
	sub.s.mu.Lock()
	defer sub.s.mu.Unlock()
	delete(sub.s.subs, sub)
}

// next waits for an event. It is called from one goroutine.
func (sub *subscription) next(ctx context.Context) (*criv1.ContainerEventResponse, error) {
	for {
		sub.s.mu.Lock()
		if len(sub.queue) > 0 {
			ev := sub.queue[0]
			sub.queue[0] = nil
			sub.queue = sub.queue[1:]
			sub.s.mu.Unlock()
			return ev, nil
		}
		err := sub.err
		sub.s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-sub.wake:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// GetContainerEvents streams what happens from now on. It sends its header when it
// listens.
func (s *runtimeServer) GetContainerEvents(_ *criv1.GetEventsRequest, stream grpc.ServerStreamingServer[criv1.ContainerEventResponse]) error {
	sub := s.s.subscribe()
	defer sub.end()
	if err := stream.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	for {
		ev, err := sub.next(stream.Context())
		if err != nil {
			return err
		}
		if err := stream.Send(ev); err != nil {
			return err
		}
	}
}

// emit tells of a container, or of its sandbox if c is nil. mu is held.
func (s *service) emit(sb *sandbox, c *container, kind criv1.ContainerEventType) {
	s.cond.Changed()
	if len(s.subs) == 0 && len(s.evFaults) == 0 {
		return
	}
	id, name, image := sb.id, "", ""
	if c != nil {
		id, name, image = c.id, c.name(), c.image()
	}
	copies := s.copies(sb.pod, name, image, kind)
	if copies == 0 || len(s.subs) == 0 {
		return
	}
	ev := &criv1.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: sb.status(),
	}
	for _, c := range sb.containers {
		ev.ContainersStatuses = append(ev.ContainersStatuses, c.status(s))
	}
	for sub := range s.subs {
		for range copies {
			sub.queue = append(sub.queue, ev)
		}
		if len(sub.queue) > maxQueued {
			sub.queue = nil
			sub.fail(status.Error(codes.ResourceExhausted, "the listener is too far behind; events were lost"))
			continue
		}
		sub.poke()
	}
}
