package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

var _ runtime.LogReopener = (*Runtime)(nil)

// ReopenContainerLog implements [runtime.LogReopener]. Runtimes have no code for a container that has ended, so after a
// failure its status is read.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id runtime.ContainerID) error {
	about := "container " + id.String()
	_, err := call(ctx, r, "ReopenContainerLog", about, 0, r.rs.ReopenContainerLog,
		&criv1.ReopenContainerLogRequest{ContainerId: id.ID})
	if err == nil {
		return nil
	}
	if !errors.Is(err, runtime.ErrNotFound) && ctx.Err() == nil && r.hasEnded(ctx, id) {
		return fmt.Errorf("opening a new log of %s: it has ended: %w: %w", about, runtime.ErrNotFound, err)
	}
	return fmt.Errorf("opening a new log of %s: %w", about, err)
}

// settleTime is the time after which the status of a container is read again. A runtime may report for some
// milliseconds that a container runs which has ended.
const settleTime = 100 * time.Millisecond

// hasEnded reports whether the runtime has no such container, or one that has ended.
func (r *Runtime) hasEnded(ctx context.Context, id runtime.ContainerID) bool {
	for again := true; ; again = false {
		resp, err := call(ctx, r, "ContainerStatus", "container "+id.String(), 0, r.rs.ContainerStatus,
			&criv1.ContainerStatusRequest{ContainerId: id.ID})
		switch {
		case err != nil:
			return errors.Is(err, runtime.ErrNotFound)
		case resp.GetStatus().GetState() == criv1.ContainerState_CONTAINER_EXITED:
			return true
		case !again || !flow.Sleep(ctx, settleTime):
			return false
		}
	}
}
