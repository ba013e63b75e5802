package cri

import (
	"context"
	"fmt"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var _ runtime.LogReopener = (*Runtime)(nil)

// ReopenContainerLog implements [runtime.LogReopener].
func (r *Runtime) ReopenContainerLog(ctx context.Context, id runtime.ContainerID) error {
	about := "container " + id.String()
	if _, err := call(ctx, r, "ReopenContainerLog", about, 0, r.rs.ReopenContainerLog, &criv1.ReopenContainerLogRequest{ContainerId: id.ID}); err != nil {
		return fmt.Errorf("opening a new log of %s: %w", about, err)
	}
	return nil
}
