package cri

import (
	"context"
	"fmt"
	"time"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var _ runtime.Checkpointer = (*Runtime)(nil)

// CheckpointContainer implements [runtime.Checkpointer]. As with kubelet, a timeout that is
// less than [Options].CallTimeout counts as that.
func (r *Runtime) CheckpointContainer(ctx context.Context, id runtime.ContainerID, path string,
	timeout time.Duration) error {
	timeout = max(timeout, r.opts.CallTimeout)
	req := &criv1.CheckpointContainerRequest{ContainerId: id.ID, Location: path, Timeout: int64(timeout / time.Second)}
	if _, err := call(ctx, r, "CheckpointContainer", "container "+id.String(), timeout-r.opts.CallTimeout,
		r.rs.CheckpointContainer, req); err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	return nil
}
