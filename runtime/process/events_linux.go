package process

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// GetContainerEvents implements CRI. The stream ends with ResourceExhausted when the
// reader lags behind by 1024 events.
func (s *runtimeService) GetContainerEvents(_ *criv1.GetEventsRequest, stream grpc.ServerStreamingServer[criv1.ContainerEventResponse]) error {
	r := s.events.subscribe()
	defer s.events.unsubscribe(r)
	// Who gets the header knows that nothing is missed from here on.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		select {
		case e, ok := <-r.events:
			if !ok {
				return status.Error(codes.ResourceExhausted, "events were not read fast enough; list, and read again")
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

// publish tells of something that has happened to a container, or to a sandbox, with
// the state of its pod as it is now. b may be nil.
func (s *Server) publish(id string, kind criv1.ContainerEventType, b *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publishLocked(id, kind, b)
}

// publishLocked is [Server.publish] with s.mu held, which keeps events in the order of
// what they tell of.
func (s *Server) publishLocked(id string, kind criv1.ContainerEventType, b *sandbox) {
	if !s.events.wanted() {
		return
	}
	e := &criv1.ContainerEventResponse{ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano()}
	if b != nil {
		e.PodSandboxStatus = s.sandboxStatus(b)
		for _, c := range s.containersLocked(b.rec.ID) {
			e.ContainersStatuses = append(e.ContainersStatuses, c.criStatus())
		}
	}
	s.events.publish(e)
}
