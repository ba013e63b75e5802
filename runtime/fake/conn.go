package fake

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto" // registers the codec
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// conn is a client connection to the service in the same process. A call is served in
// the goroutine that makes it. Messages are encoded and decoded as on a wire, so that
// the two sides share no memory.
type conn struct{ s *service }

var _ grpc.ClientConnInterface = (*conn)(nil)

// serviceDescs describes the services of CRI.
func serviceDescs() []*grpc.ServiceDesc {
	return []*grpc.ServiceDesc{&criv1.RuntimeService_ServiceDesc, &criv1.ImageService_ServiceDesc}
}

// handler serves a call, or a stream that ends by itself.
type handler struct {
	service string
	serve   grpc.MethodHandler
	stream  grpc.StreamHandler
}

// handlers has all calls of CRI by their full names.
var handlers = sync.OnceValue(func() map[string]handler {
	all := map[string]handler{}
	for _, desc := range serviceDescs() {
		for _, m := range desc.Methods {
			all["/"+desc.ServiceName+"/"+m.MethodName] = handler{service: desc.ServiceName, serve: m.Handler}
		}
		for _, m := range desc.Streams {
			all["/"+desc.ServiceName+"/"+m.StreamName] = handler{service: desc.ServiceName, stream: m.Handler}
		}
	}
	return all
})

// serverOf returns the implementation of a service.
func (c *conn) serverOf(service string) any {
	if service == criv1.ImageService_ServiceDesc.ServiceName {
		return c.s.is
	}
	return c.s.rs
}

// transfer copies a message by encoding and decoding it.
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

// Invoke makes a call. It ignores the options of gRPC.
func (c *conn) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	h := handlers()[method]
	if h.serve == nil {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	resp, err := h.serve(c.serverOf(h.service), ctx, func(req any) error { return transfer(args, req) }, c.s.intercept)
	if err != nil {
		return err
	}
	return transfer(resp, reply)
}

// NewStream opens a stream: the event stream, or the stream of a list.
func (c *conn) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string,
	_ ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if method == criv1.RuntimeService_GetContainerEvents_FullMethodName {
		return newEventReader(ctx, c.s.listen(ctx)), nil
	}
	h := handlers()[method]
	if h.stream == nil {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	return &listReader{reader: reader{ctx},
		serve: func(s grpc.ServerStream) error { return h.stream(c.serverOf(h.service), s) }}, nil
}
