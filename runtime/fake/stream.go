package fake

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventCall is a call of GetContainerEvents. It receives events from the moment it is
// made. For its record and its faults, the call ends when the runtime has answered.
type eventCall struct {
	*pending
	sub *subscription // nil if the call is not served
}

// listen makes a call of GetContainerEvents.
func (s *service) listen(ctx context.Context) *eventCall {
	e := &eventCall{pending: s.begin(ctx, "GetContainerEvents", &criv1.GetEventsRequest{})}
	if e.err == nil {
		e.sub = s.subscribe(ctx)
	}
	return e
}

// answer returns when the stream is established, or an error if it is not. It is called
// once.
func (e *eventCall) answer() error {
	_, err := e.run(func(context.Context) (any, error) { return nil, nil })
	if err != nil && e.sub != nil {
		e.sub.end()
	}
	return err
}

// GetContainerEvents streams events from now on, as configured by [EventStream].
func (s *runtimeServer) GetContainerEvents(_ *criv1.GetEventsRequest,
	stream grpc.ServerStreamingServer[criv1.ContainerEventResponse]) error {
	e := s.s.listen(stream.Context())
	if err := e.answer(); err != nil {
		return err
	}
	defer e.sub.end()
	if !s.s.opts.Events.Unannounced {
		if err := stream.SendHeader(metadata.MD{}); err != nil {
			return err
		}
	}
	for {
		ev, err := e.sub.next(stream.Context())
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(ev); err != nil {
			return err
		}
	}
}

// reader is the common part of streams in memory.
type reader struct {
	ctx context.Context // that of the stream
}

func (reader) Trailer() metadata.MD       { return nil }
func (reader) CloseSend() error           { return nil }
func (r reader) Context() context.Context { return r.ctx }

// eventReader is the client side of an event stream.
type eventReader struct {
	reader
	call     *eventCall
	answered bool
	err      error
}

var _ grpc.ClientStream = (*eventReader)(nil)

func newEventReader(ctx context.Context, call *eventCall) *eventReader {
	r := &eventReader{reader: reader{ctx}, call: call}
	if len(call.hits) == 0 {
		_ = r.open() // returns at once
	}
	return r
}

func (*eventReader) SendMsg(any) error { return nil }

// open waits for the runtime's answer, which faults can delay.
func (r *eventReader) open() error {
	if !r.answered {
		r.err, r.answered = r.call.answer(), true
	}
	return r.err
}

// Header waits until the stream is established or has ended, as over a connection.
func (r *eventReader) Header() (metadata.MD, error) {
	if r.open() != nil {
		return nil, nil // RecvMsg returns the error
	}
	if r.call.s.opts.Events.Unannounced {
		if err := r.call.sub.wait(r.ctx); err != nil {
			return nil, nil
		}
	}
	return metadata.MD{}, nil
}

func (r *eventReader) RecvMsg(m any) error {
	if err := r.open(); err != nil {
		return err
	}
	ev, err := r.call.sub.next(r.ctx)
	if err != nil {
		r.call.sub.end()
		return err
	}
	return transfer(ev, m)
}

// listReader is the client side of a streamed list. The first read serves the whole
// list, in the goroutine that reads.
type listReader struct {
	reader
	serve func(grpc.ServerStream) error
	req   any
	// Once served, sent has the parts that were not read yet, and err ends the stream.
	served bool
	sent   []any
	err    error
}

var _ grpc.ClientStream = (*listReader)(nil)

func (r *listReader) SendMsg(req any) error {
	r.req = req
	return nil
}

func (r *listReader) open() {
	if !r.served {
		r.served = true
		if r.err = r.serve(&listSender{r}); r.err == nil {
			r.err = io.EOF
		}
	}
}

func (r *listReader) Header() (metadata.MD, error) {
	r.open()
	return metadata.MD{}, nil
}

func (r *listReader) RecvMsg(m any) error {
	r.open()
	if err := r.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if len(r.sent) == 0 {
		return r.err
	}
	part := r.sent[0]
	r.sent = r.sent[1:]
	return transfer(part, m)
}

// listSender is the server side.
type listSender struct{ r *listReader }

var _ grpc.ServerStream = (*listSender)(nil)

func (*listSender) SetHeader(metadata.MD) error  { return nil }
func (*listSender) SendHeader(metadata.MD) error { return nil }
func (*listSender) SetTrailer(metadata.MD)       {}
func (s *listSender) Context() context.Context   { return s.r.ctx }
func (s *listSender) RecvMsg(m any) error        { return transfer(s.r.req, m) }
func (s *listSender) SendMsg(m any) error {
	s.r.sent = append(s.r.sent, m)
	return nil
}
