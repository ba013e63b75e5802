package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit"
	clusternode "github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/cgroup"
)

// joinCgroups adds what makes the cgroups of pods, and removes those of pods that are gone. cgroups is nil if pods have
// none; then why is the reason.
func joinCgroups(ctx context.Context, opts *kubeletkit.Options, s *config.Settings, cgroups *cgroup.Pods,
	why string) error {
	if cgroups == nil {
		if s.OnMachine() {
			opts.Join = append(opts.Join, cgroup.RefuseLimits(why))
		}
		return nil
	}
	mopts, err := s.CgroupOptions()
	if err != nil {
		return err
	}
	if mopts.Capacity, err = machineCapacity(ctx); err != nil {
		return err
	}
	manager, err := cgroup.NewManager(cgroups, mopts)
	if err != nil {
		return err
	}
	opts.Join = append(opts.Join, manager)
	return nil
}

// machineCapacity returns what the cgroup of all pods can have at most.
func machineCapacity(ctx context.Context) (v1.ResourceList, error) {
	capacity, _, err := clusternode.NewMachine(clusternode.MachineOptions{}).NodeResources(ctx)
	if err != nil {
		return nil, err
	}
	delete(capacity, v1.ResourcePods)
	if n, ok := cgroup.MachinePIDs(); ok {
		capacity[cgroup.PIDs] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return capacity, nil
}
