package cri

import (
	"context"
	"fmt"
	"math"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var _ runtime.DiskUsageReporter = (*Runtime)(nil)

// ContainerDiskUsage implements [runtime.DiskUsageReporter] with ContainerStats. Runtimes
// measure writable layers from time to time, containerd every 10 s.
func (r *Runtime) ContainerDiskUsage(ctx context.Context, id runtime.ContainerID) (int64, error) {
	resp, err := call(ctx, r, "ContainerStats", "container "+id.String(), 0, r.rs.ContainerStats,
		&criv1.ContainerStatsRequest{ContainerId: id.ID})
	if err != nil {
		return 0, fmt.Errorf("usage of the container: %w", err)
	}
	return int64(min(resp.GetStats().GetWritableLayer().GetUsedBytes().GetValue(), math.MaxInt64)), nil
}
