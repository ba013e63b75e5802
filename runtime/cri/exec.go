package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// maxExecReply is the maximum size of the reply to ExecSync in bytes: gRPC's own default.
// Containers choose the output of their probes and hooks, of which 10 KiB count, and all of
// them may run at the same time.
const maxExecReply = 4 << 20

// execSync is ExecSync with the limit of its reply.
func (r *Runtime) execSync(ctx context.Context, req *criv1.ExecSyncRequest,
	opts ...grpc.CallOption) (*criv1.ExecSyncResponse, error) {
	return r.rs.ExecSync(ctx, req, append(opts, grpc.MaxCallRecvMsgSize(min(maxExecReply, r.opts.MaxMessageSize)))...)
}

// Exec implements [runtime.Execer] with ExecSync. Without a timeout the command may run
// until ctx ends. More than 4 MiB of output is an error. After a failure the status of the container is read, as
// runtimes have no code for a container that has ended.
func (r *Runtime) Exec(ctx context.Context, id runtime.ContainerID, cmd []string,
	timeout time.Duration) (runtime.ExecResult, error) {
	about := "container " + id.String()
	req := &criv1.ExecSyncRequest{ContainerId: id.ID, Cmd: cmd}
	ectx := ctx
	if timeout > 0 {
		// CRI's timeout is in whole seconds. The deadline of the call is exact, and the
		// runtime ends the command at the earlier of both.
		req.Timeout = int64((timeout + time.Second - 1) / time.Second)
		var cancel context.CancelFunc
		ectx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	resp, err := call(ectx, r, "ExecSync", about, -1, r.execSync, req)
	if err != nil {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return runtime.ExecResult{}, fmt.Errorf("command %q did not end within %s: %w", cmd, timeout, err)
		}
		if ctx.Err() == nil && !errors.Is(err, runtime.ErrNotFound) && r.hasEnded(ctx, id) {
			return runtime.ExecResult{}, fmt.Errorf("command %q: it has ended: %w: %w", cmd, runtime.ErrNotFound, err)
		}
		return runtime.ExecResult{}, fmt.Errorf("command %q: %w", cmd, err)
	}
	return runtime.ExecResult{
		Output:   append(resp.GetStdout(), resp.GetStderr()...),
		ExitCode: resp.GetExitCode(),
	}, nil
}
