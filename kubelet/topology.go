package kubelet

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
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
	// leaves means that cpus only keeps containers off the CPUs that an earlier policy static has given.
	leaves  bool
	states  []stateFile
	metrics *metrics
	log     logr.Logger
}

// placementRuntime is what placement needs of a container runtime.
type placementRuntime interface {
	runtime.CPUSetter
	lister
}

// newPlacement reads the machine, if the settings place containers on it, and the assignments of an earlier agent.
func newPlacement(ctx context.Context, s *config.Settings, rt placementRuntime, m *metrics,
	log logr.Logger) (*placement, error) {
	p, err := openPlacement(ctx, s, os.DirFS("/"), rt, m, log)
	if err != nil {
		return nil, err
	}
	return p, p.settle()
}

// openPlacement makes the managers of the settings for the machine that the files describe, and has them read their
// states. It changes nothing.
func openPlacement(ctx context.Context, s *config.Settings, host fs.FS, rt placementRuntime, m *metrics,
	log logr.Logger) (*placement, error) {
	p := &placement{scope: topology.Scope(s.TopologyManagerScope), metrics: m, log: log.WithName("topology")}
	if !s.OnMachine() {
		return p, nil
	}
	if err := p.leavePolicies(ctx, s, rt); err != nil {
		return nil, err
	}
	if !s.StaticCPUs() && !p.leaves && !s.StaticMemory() && s.TopologyManagerPolicy == topology.PolicyNone {
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
	if s.StaticCPUs() || p.leaves {
		if err := p.addCPUs(ctx, s, host, rt, machine); err != nil {
			return nil, err
		}
	}
	if s.StaticMemory() {
		if err := p.addMemory(ctx, s, rt, machine, log); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// leavePolicies reads what the policies static have left, if the settings have others.
func (p *placement) leavePolicies(ctx context.Context, s *config.Settings, rt lister) (err error) {
	if !s.StaticCPUs() {
		path, gone, f := filepath.Join(s.RootDir, cpus.CheckpointName), hasNoDir(s), cpuState()
		f.leave = func() error { return cpus.LeaveStatic(path, gone, true) }
		static, err := cpus.StaticLeft(path, gone)
		if p.leaves, err = p.left(ctx, s, rt, f, static, err, s.ResetCPUs); err != nil {
			return err
		}
	}
	if !s.StaticMemory() {
		path, gone, f := filepath.Join(s.RootDir, memory.FileName), hasNoDir(s), memoryState()
		f.leave = func() error { return memory.LeaveStatic(path, gone, true) }
		static, err := memory.StaticLeft(path, gone)
		if _, err = p.left(ctx, s, rt, f, static, err, s.ResetMemoryState); err != nil {
			return err
		}
	}
	return nil
}

func cpuState() stateFile { return stateFile{file: cpus.CheckpointName, flag: resetCPUsFlag} }

// resetCPUsFlag is the flag that drops assignments.
const resetCPUsFlag = "--reset-cpu-manager-state"

// addCPUs adds the manager of exclusive CPUs, and reads its assignments.
func (p *placement) addCPUs(ctx context.Context, s *config.Settings, host fs.FS, rt placementRuntime,
	machine numa.Machine) error {
	copts, err := s.CPUOptions()
	if err != nil {
		return err
	}
	if err := copts.PolicyOptions.Validate(machine, s.TopologyManagerPolicy); err != nil {
		return err
	}
	copts.Logger, copts.Pinned, copts.Changed = p.log, p.metrics.resources.CPUsPinned, p.metrics.resources.CPUs
	copts.Aligned = func(b cpus.Boundary, err error) { p.metrics.resources.Aligned("container", string(b), err) }
	copts.Leave, copts.Reset, copts.ResetHint = p.leaves, false, "the flag is "+resetCPUsFlag
	copts.Online = func() (cpuset.CPUSet, error) { return numa.Online(host) }
	copts.Gone = hasNoDir(s)
	if p.cpus, err = cpus.New(machine, filepath.Join(s.RootDir, cpus.CheckpointName), rt, copts); err != nil {
		return err
	}
	if p.leaves {
		return p.cpus.Restore()
	}
	return p.restore(ctx, s, rt, p.cpus, cpuState(), s.ResetCPUs)
}

// noCPUQuota reports whether no limit of CPU is enforced for the pod; nil if it always is.
func (p *placement) noCPUQuota(s *config.Settings) func(pod *v1.Pod) bool {
	if p.cpus == nil {
		return nil
	}
	if copts, err := s.CPUOptions(); err != nil || copts.KeepQuota {
		return nil
	}
	return func(pod *v1.Pod) bool { return p.cpus.HasExclusive(pod.UID) }
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
	manager, err := topology.New(topology.Options{
		Policy: p.policy, Scope: p.scope, Admitted: p.metrics.resources.TopologyAdmitted,
		Aligned: func(scope topology.Scope, err error) {
			p.metrics.resources.Aligned(string(scope), "numa_node", err)
		},
	})
	if err != nil {
		return err
	}
	opts.Join = append(opts.Join, manager)
	return nil
}

// sources report what the components hold to the API of pod resources.
func (p *placement) sources() (out []podresources.Source) {
	if p.cpus != nil && !p.leaves {
		out = append(out, podresources.Source{
			Of: func(pod *v1.Pod, c *v1.Container) podresources.Resources {
				return podresources.Resources{CPUs: p.cpus.Exclusive(pod.UID, c.Name)}
			},
			Allocatable: func() podresources.Resources { return podresources.Resources{CPUs: p.cpus.Allocatable()} },
		})
	}
	if p.memory != nil {
		out = append(out, memorySource(p.memory))
	}
	return out
}
