package cri

import (
	"context"
	"fmt"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var _ runtime.CPUSetter = (*Runtime)(nil)

// SetCPUSet implements [runtime.CPUSetter].
func (r *Runtime) SetCPUSet(ctx context.Context, id runtime.ContainerID, cpus string) error {
	about := "container " + id.String()
	_, err := call(ctx, r, "UpdateContainerResources", about, 0, r.rs.UpdateContainerResources,
		&criv1.UpdateContainerResourcesRequest{
			// a runtime does not change what is 0
			ContainerId: id.ID, Linux: &criv1.LinuxContainerResources{CpusetCpus: cpus},
		})
	if err != nil {
		return fmt.Errorf("setting the CPUs of %s: %w", about, err)
	}
	return nil
}
