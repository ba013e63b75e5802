package kubelet

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	clusternode "github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/placement/memory"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/podresources"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// addMemory adds the manager of memory nodes.
func (p *placement) addMemory(ctx context.Context, s *config.Settings, list func() ([]*runtime.Pod, error),
	machine numa.Machine) error {
	reserved, err := nodeReserved(ctx, s)
	if err != nil {
		return err
	}
	p.memory, err = memory.New(filepath.Join(s.RootDir, memory.FileName), machine, memory.Options{
		Reserved: s.MemoryReservations(), NodeReserved: reserved,
		Leave: p.leavesMemory, Reset: s.ResetMemoryState, ResetHint: "the flag is " + resetMemoryFlag, ListPods: list,
		WholePods: s.ManagesWholePods(),
	})
	return err
}

// nodeReserved returns what pods cannot request of the machine's memory: kube-reserved, system-reserved and the hard
// eviction threshold.
func nodeReserved(ctx context.Context, s *config.Settings) (v1.ResourceList, error) {
	capacity, err := machineCapacity(ctx)
	if err != nil {
		return nil, err
	}
	reserved, err := s.Reserved()
	if err != nil {
		return nil, err
	}
	// Huge pages are not allocatable as memory, but not reserved either.
	memory := v1.ResourceList{v1.ResourceMemory: capacity[v1.ResourceMemory]}
	allocatable, err := clusternode.Allocatable(memory, reserved, s.EvictionHard)
	if err != nil {
		return nil, err
	}
	out := podspec.Remaining(memory, v1.ResourceList{v1.ResourceMemory: allocatable[v1.ResourceMemory]})
	for name, q := range reserved {
		if _, huge := podspec.HugePageSize(name); huge {
			out[name] = q
		}
	}
	return out, nil
}

// memorySource reports memory to the API of pod resources.
func memorySource(manager *memory.Manager) podresources.Source {
	resources := func(blocks []memory.Block) (r podresources.Resources) {
		for _, b := range blocks {
			r.Memory = append(r.Memory, podresources.Memory{Resource: b.Resource, Size: b.Size, Nodes: b.Nodes})
		}
		return r
	}
	return podresources.Source{
		Of: func(pod *v1.Pod, c *v1.Container) podresources.Resources {
			return resources(manager.Exclusive(pod, c))
		},
		OfPod:       func(pod *v1.Pod) podresources.Resources { return resources(manager.OfPod(pod.UID)) },
		Allocatable: func() podresources.Resources { return resources(manager.Allocatable()) },
	}
}
