package fake

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto" // registers the codec
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// conn is a client connection to the service in the same process: a call is
// served in the goroutine that makes it. Messages are encoded and decoded as on a
// wire, so that neither side can change what the other holds.
type conn struct{ s *service }

var _ grpc.ClientConnInterface = (*conn)(nil)

type handler struct {
	serve grpc.MethodHandler
	image bool
}

// handlers are all calls of CRI by their full names.
var handlers = sync.OnceValue(func() map[string]handler {
	all := map[string]handler{}
	for _, desc := range []*grpc.ServiceDesc{&criv1.RuntimeService_ServiceDesc, &criv1.ImageService_ServiceDesc} {
		for _, m := range desc.Methods {
			all["/"+desc.ServiceName+"/"+m.MethodName] = handler{m.Handler, desc == &criv1.ImageService_ServiceDesc}
		}
	}
	return all
})

// transfer copies a message by way of its encoded form.
func transfer(from, to any) error {
	codec := encoding.GetCodecV2(proto.Name)
	data, err := codec.Marshal(from)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	defer data.Free()
	if err := codec.Unmarshal(data, to); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// Invoke makes a call. Options of gRPC have no meaning here.
func (c *conn) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	h, ok := handlers()[method]
	if !ok {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	var srv any = c.s.rs
	if h.image {
		srv = c.s.is
	}
	resp, err := h.serve(srv, ctx, func(req any) error { return transfer(args, req) }, c.s.intercept)
	if err != nil {
		return err
	}
	return transfer(resp, reply)
}

// NewStream opens a stream of events, the only one there is.
func (c *conn) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	if method != criv1.RuntimeService_GetContainerEvents_FullMethodName {
		return nil, status.Errorf(codes.Unimplemented, "the fake runtime has no stream %s", method)
	}
	// The call is over, for its record and its faults, when the stream stands.
	_, err := c.s.intercept(ctx, &criv1.GetEventsRequest{}, &grpc.UnaryServerInfo{FullMethod: method},
		func(context.Context, any) (any, error) { return nil, nil })
	if err != nil {
		return nil, err
	}
	return &clientStream{ctx: ctx, sub: c.s.subscribe()}, nil
}

// clientStream is the reader's end of a stream of events.
type clientStream struct {
	ctx context.Context
	sub *subscription
}

func (*clientStream) Header() (metadata.MD, error) { return nil, nil }
func (*clientStream) Trailer() metadata.MD         { return nil }
func (*clientStream) CloseSend() error             { return nil }
func (*clientStream) SendMsg(any) error            { return nil }
func (s *clientStream) Context() context.Context   { return s.ctx }

func (s *clientStream) RecvMsg(m any) error {
	ev, err := s.sub.next(s.ctx)
	if err != nil {
		s.sub.end()
		return err
	}
	if _, ok := m.(*criv1.ContainerEventResponse); !ok {
		return status.Error(codes.Internal, fmt.Sprintf("a stream of events has no %T", m))
	}
	return transfer(ev, m)
}
