package fake

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// running returns a running container by its ID.
func (s *service) running(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers.byID[id]
	switch {
	case c == nil:
		return nil, notFound("container", id)
	case c.state != criv1.ContainerState_CONTAINER_RUNNING:
		return nil, status.Errorf(codes.FailedPrecondition, "container %q is not running", id)
	}
	return c, nil
}

// exec runs a command in a running container, as defined by its behavior.
func (c *container) exec(ctx context.Context, cmd []string) (runtime.ExecResult, error) {
	if c.behavior.Exec == nil { // constant while it runs
		return runtime.ExecResult{}, nil
	}
	res, err := c.behavior.Exec(ctx, cmd)
	if err == nil {
		err = ctx.Err()
	}
	return res, err
}

// ExecSync runs a command as defined by the behavior of the container. It fails when the
// command exceeds the timeout.
func (s *runtimeServer) ExecSync(ctx context.Context, req *criv1.ExecSyncRequest) (*criv1.ExecSyncResponse, error) {
	c, err := s.s.running(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if t := req.GetTimeout(); t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, podspec.Seconds(t))
		defer cancel()
	}
	res, err := c.exec(ctx, req.GetCmd())
	if err != nil {
		return nil, err
	}
	return &criv1.ExecSyncResponse{Stdout: res.Output, ExitCode: res.ExitCode}, nil
}
