package cri

import (
	"context"
	"errors"
	"fmt"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var _ runtime.LogReopener = (*Runtime)(nil)

// ReopenContainerLog implements [runtime.LogReopener]. Runtimes have no code for a container that has ended, so after a failure its
// status is read.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id runtime.ContainerID) error {
	about := "container " + id.String()
	_, err := call(ctx, r, "ReopenContainerLog", about, 0, r.rs.ReopenContainerLog, &criv1.ReopenContainerLogRequest{ContainerId: id.ID})
	if err == nil {
		return nil
	}
	if !errors.Is(err, runtime.ErrNotFound) && ctx.Err() == nil && r.hasEnded(ctx, id) {
		return fmt.Errorf("opening a new log of %s: it has ended: %w: %w", about, runtime.ErrNotFound, err)
	}
	return fmt.Errorf("opening a new log of %s: %w", about, err)
}

// hasEnded reports whether the runtime has no such container, or one that has ended.
func (r *Runtime) hasEnded(ctx context.Context, id runtime.ContainerID) bool {
	resp, err := call(ctx, r, "ContainerStatus", "container "+id.String(), 0, r.rs.ContainerStatus, &criv1.ContainerStatusRequest{ContainerId: id.ID})
	if err != nil {
		return errors.Is(err, runtime.ErrNotFound)
	}
	return resp.GetStatus().GetState() == criv1.ContainerState_CONTAINER_EXITED
}
