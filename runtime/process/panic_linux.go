package process

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// recoverUnary makes a panic of a call an error of the call. Without it, the panic would end
// the agent.
func (s *Server) recoverUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (resp any, err error) {
	err = runtime.Recover(func() (err error) {
		resp, err = handler(ctx, req)
		return err
	})
	return resp, s.internal(info.FullMethod, err)
}

// recoverStream is recoverUnary for a call with a stream.
func (s *Server) recoverStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	return s.internal(info.FullMethod, runtime.Recover(func() error { return handler(srv, stream) }))
}

// internal logs a panic and makes it an error with code Internal. It returns any other error
// as it is.
func (s *Server) internal(method string, err error) error {
	var p *runtime.PanicError
	if !errors.As(err, &p) {
		return err
	}
	s.opts.Logger.Error(err, "A call panicked", "method", method, "stack", string(p.Stack))
	return status.Errorf(codes.Internal, "%s: %v", method, err)
}
