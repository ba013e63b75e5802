package process

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// GetContainerEvents implements CRI. The stream ends with ResourceExhausted when the reader
// is 1024 events behind.
func (s *runtimeService) GetContainerEvents(_ *criv1.GetEventsRequest,
	stream grpc.ServerStreamingServer[criv1.ContainerEventResponse]) error {
	r := s.events.subscribe()
	defer s.events.unsubscribe(r)
	// The client receives the header when the subscription is active.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		select {
		case e, ok := <-r.events:
			if !ok {
				return status.Error(codes.ResourceExhausted, "the events were not read fast enough; list, and "+
					"subscribe again")
			}
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.life.Done():
			return status.Error(codes.Unavailable, "the runtime is shutting down")
		}
	}
}

// publish publishes an event of a container or a sandbox, with the current state of its
// pod. b may be nil.
func (s *Server) publish(id string, kind criv1.ContainerEventType, b *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publishLocked(id, kind, b)
}

// publishLocked is [Server.publish] with s.mu held. The lock keeps the events in the order
// of the changes.
func (s *Server) publishLocked(id string, kind criv1.ContainerEventType, b *sandbox) {
	if !s.events.wanted() {
		return
	}
	e := &criv1.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano()}
	if b != nil {
		e.PodSandboxStatus = s.sandboxStatus(b)
		for _, c := range b.containers {
			e.ContainersStatuses = append(e.ContainersStatuses, c.criStatus())
		}
	}
	s.events.publish(e)
}
