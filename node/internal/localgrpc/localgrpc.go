// Package localgrpc serves gRPC on a unix socket for programs of the node, as kubelet does.
package localgrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Kubelet's limits of requests of one answer.
const (
	DefaultQPS   = 100
	DefaultBurst = 10
)

// Server is what a socket serves. Make one with [New].
type Server struct {
	// Path is that of the socket.
	Path       string
	qps, burst int
	// Done is called after each request that was not refused, with the version of the API, the method, and its error.
	// nil: nothing is called.
	Done func(version, method string, err error)
	// Register adds the services.
	Register func(grpc.ServiceRegistrar)
}

// New returns a server on the socket with the path. It answers qps requests in a second, and burst at once, and refuses
// others with the code ResourceExhausted. Defaults: [DefaultQPS], [DefaultBurst]. Requests of a stream have no limit.
func New(path string, qps, burst int) (*Server, error) {
	var errs []error
	if path == "" {
		errs = append(errs, errors.New("the path of the socket is empty"))
	}
	if qps < 0 || burst < 0 {
		errs = append(errs, fmt.Errorf("%d requests in a second and %d at once: must be positive", qps, burst))
	}
	return &Server{Path: path, qps: cmp.Or(qps, DefaultQPS), burst: cmp.Or(burst, DefaultBurst)}, errors.Join(errs...)
}

// Run serves until ctx ends, and returns when all requests have ended. A socket that an earlier agent has left is
// replaced in one step. The socket stays when Run returns. A panic of a service fails its request.
func (s *Server) Run(ctx context.Context) error {
	listener, err := listen(s.Path)
	if err != nil {
		return err
	}
	limit := rate.NewLimiter(rate.Limit(s.qps), s.burst)
	server := grpc.NewServer(grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (answer any, err error) {
			if !limit.Allow() {
				return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
			}
			err = runtime.Recover(func() error {
				answer, err = handle(ctx, req)
				return err
			})
			s.done(info.FullMethod, err)
			return answer, err
		}),
		grpc.StreamInterceptor(func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
			handle grpc.StreamHandler) error {
			err := runtime.Recover(func() error { return handle(service, stream) })
			s.done(info.FullMethod, err)
			return err
		}))
	s.Register(server)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// done splits the name of a method, such as /v1.PodResourcesLister/List.
func (s *Server) done(fullMethod string, err error) {
	if s.Done == nil {
		return
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	version, _, _ := strings.Cut(service, ".")
	s.Done(version, method, err)
}

// listen replaces the socket by one that listens.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", temp)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Rename(temp, path); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
