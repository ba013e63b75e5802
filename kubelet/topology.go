package kubelet

import (
	"context"
	"io/fs"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/memory"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/node/podresources"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// placement places containers on CPUs and memory nodes.
type placement struct {
	policy topology.Policy // nil: the policy none
	scope  topology.Scope
	cpus   *cpus.Manager   // nil: no container has exclusive CPUs
	memory *memory.Manager // nil: no container has memory of chosen nodes
	// leavesCPUs and leavesMemory mean that the manager only keeps what an earlier policy static has given.
	leavesCPUs, leavesMemory bool
}

// placementRuntime is what placement needs of a container runtime.
type placementRuntime interface {
	runtime.CPUSetter
	ListPods(ctx context.Context) ([]*runtime.Pod, error)
}

// The flags that drop the states of managers.
const (
	resetCPUsFlag   = "--reset-cpu-manager-state"
	resetMemoryFlag = "--reset-memory-manager-state"
)

// newPlacement makes the managers of the settings for the machine that the files of the host describe. They read their
// states when they join an agent. ctx is that of the runtime, until then.
func newPlacement(ctx context.Context, s *config.Settings, host fs.FS, rt placementRuntime) (p *placement,
	err error) {
	p = &placement{scope: topology.Scope(s.TopologyManagerScope)}
	if !s.OnMachine() {
		return p, nil
	}
	if !s.StaticCPUs() {
		if p.leavesCPUs, err = cpus.StaticLeft(filepath.Join(s.RootDir, cpus.CheckpointName)); err != nil {
			return nil, err
		}
	}
	if !s.StaticMemory() {
		if p.leavesMemory, err = memory.StaticLeft(filepath.Join(s.RootDir, memory.FileName)); err != nil {
			return nil, err
		}
	}
	hasCPUs, hasMemory := s.StaticCPUs() || p.leavesCPUs, s.StaticMemory() || p.leavesMemory
	if !hasCPUs && !hasMemory && s.TopologyManagerPolicy == topology.PolicyNone {
		return p, nil
	}
	machine, err := numa.Read(host)
	if err != nil {
		return nil, err
	}
	topts, err := s.TopologyOptions()
	if err != nil {
		return nil, err
	}
	if p.policy, err = topology.NewPolicy(s.TopologyManagerPolicy, machine, topts); err != nil {
		return nil, err
	}
	list := func() ([]*runtime.Pod, error) { return rt.ListPods(ctx) }
	if hasCPUs {
		if err := p.addCPUs(s, host, rt, list, machine); err != nil {
			return nil, err
		}
	}
	if hasMemory {
		if err := p.addMemory(ctx, s, list, machine); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// addCPUs adds the manager of exclusive CPUs.
func (p *placement) addCPUs(s *config.Settings, host fs.FS, rt runtime.CPUSetter,
	list func() ([]*runtime.Pod, error), machine numa.Machine) error {
	copts, err := s.CPUOptions()
	if err != nil {
		return err
	}
	if err := copts.PolicyOptions.Validate(machine, s.TopologyManagerPolicy); err != nil {
		return err
	}
	copts.Leave, copts.Reset, copts.ResetHint = p.leavesCPUs, s.ResetCPUs, "the flag is "+resetCPUsFlag
	copts.Online = func() (cpuset.CPUSet, error) { return numa.Online(host) }
	copts.ListPods = list
	p.cpus, err = cpus.New(machine, filepath.Join(s.RootDir, cpus.CheckpointName), rt, copts)
	return err
}

// join adds the components to the options of the agent.
func (p *placement) join(opts *kubeletkit.Options) error {
	if p.policy == nil && p.cpus == nil && p.memory == nil {
		return nil
	}
	if p.cpus != nil {
		opts.Join = append(opts.Join, p.cpus)
	}
	if p.memory != nil {
		opts.Join = append(opts.Join, p.memory)
	}
	manager, err := topology.New(topology.Options{Policy: p.policy, Scope: p.scope})
	if err != nil {
		return err
	}
	opts.Join = append(opts.Join, manager)
	return nil
}

// sources report what the components hold to the API of pod resources.
func (p *placement) sources() (out []podresources.Source) {
	if p.cpus != nil && !p.leavesCPUs {
		out = append(out, podresources.Source{
			Of: func(pod *v1.Pod, c *v1.Container) podresources.Resources {
				return podresources.Resources{CPUs: p.cpus.Exclusive(pod.UID, c.Name)}
			},
			OfPod: func(pod *v1.Pod) podresources.Resources {
				return podresources.Resources{CPUs: p.cpus.OfPod(pod.UID)}
			},
			Allocatable: func() podresources.Resources { return podresources.Resources{CPUs: p.cpus.Allocatable()} },
		})
	}
	if p.memory != nil && !p.leavesMemory {
		out = append(out, memorySource(p.memory))
	}
	return out
}
