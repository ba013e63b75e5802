package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/resources/cpus"
	"github.com/kubeletkit/kubeletkit/resources/memory"
	"github.com/kubeletkit/kubeletkit/resources/numa"
	"github.com/kubeletkit/kubeletkit/resources/podresources"
	"github.com/kubeletkit/kubeletkit/resources/topology"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// placement places containers on CPUs and memory nodes. The agent is set by join.
type placement struct {
	policy    topology.Policy
	scope     topology.Scope
	cpus      *cpus.Manager   // nil: no container has exclusive CPUs
	memory    *memory.Manager // nil: no container has memory of chosen nodes
	providers []topology.Provider
	agent     *kubeletkit.Agent
	metrics   *metrics
	log       logr.Logger
}

// newPlacement reads the machine, if the settings place containers on it, and the assignments of an earlier agent.
func newPlacement(ctx context.Context, s *config.Settings, rt runtime.CPUSetter, m *metrics, log logr.Logger) (*placement, error) {
	p := &placement{scope: topology.Scope(s.TopologyManagerScope), metrics: m, log: log.WithName("topology")}
	checkpoint := filepath.Join(s.RootDir, cpus.CheckpointName)
	if !s.StaticCPUs() && !s.Embedded {
		if err := cpus.LeaveStatic(checkpoint, hasNoDir(s), s.ResetCPUs); err != nil {
			return nil, resetHint(err)
		}
	}
	if !s.StaticMemory() && !s.Embedded {
		if err := memory.LeaveStatic(filepath.Join(s.RootDir, memory.FileName), hasNoDir(s), s.ResetMemoryState); err != nil {
			return nil, fmt.Errorf("%w; the flag is %s", err, resetMemoryFlag)
		}
	}
	if s.Embedded || !s.StaticCPUs() && !s.StaticMemory() && s.TopologyManagerPolicy == topology.PolicyNone {
		return p, nil
	}
	machine, err := numa.Read(os.DirFS("/"))
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
	if s.StaticCPUs() {
		if err := p.addCPUs(s, rt, machine, checkpoint); err != nil {
			return nil, err
		}
	}
	if s.StaticMemory() {
		if p.memory, err = newMemoryManager(ctx, s, machine, m, log); err != nil {
			return nil, err
		}
		p.providers = append(p.providers, p.memory)
	}
	return p, nil
}

// addCPUs adds the manager of exclusive CPUs, and reads its assignments.
func (p *placement) addCPUs(s *config.Settings, rt runtime.CPUSetter, machine numa.Machine, checkpoint string) error {
	copts, err := s.CPUOptions()
	if err != nil {
		return err
	}
	if err := copts.PolicyOptions.Validate(machine, s.TopologyManagerPolicy); err != nil {
		return err
	}
	copts.Logger, copts.Pinned, copts.Changed = p.log, p.metrics.resources.CPUsPinned, p.metrics.resources.CPUs
	copts.Aligned = func(b cpus.Boundary, err error) { p.metrics.resources.Aligned("container", string(b), err) }
	copts.Gone = func(uid types.UID) bool { return p.agent.Synced() && p.agent.Parts().Gone(uid) }
	if p.cpus, err = cpus.New(machine, checkpoint, rt, copts); err != nil {
		return err
	}
	p.providers = append(p.providers, p.cpus)
	return resetHint(p.cpus.Restore())
}

// resetHint adds the flag that drops assignments.
func resetHint(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; the flag is --reset-cpu-manager-state", err)
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

// join adds the components to the options of the agent. They come after all that refuses pods for other reasons.
func (p *placement) join(opts *kubeletkit.Options) {
	if len(p.providers) == 0 {
		return
	}
	if p.cpus != nil {
		opts.Join = append(opts.Join, p.cpus)
	}
	if p.memory != nil {
		opts.Join = append(opts.Join, p.memory)
	}
	opts.Join = append(opts.Join, kubeletkit.WithAgent(func(agent *kubeletkit.Agent) (lifecycle.Component, error) {
		p.agent = agent
		return topology.New(p.providers, topology.Options{
			Policy: p.policy, Scope: p.scope, Logger: p.log, Admitted: p.metrics.resources.TopologyAdmitted,
			Aligned: func(scope topology.Scope, err error) { p.metrics.resources.Aligned(string(scope), "numa_node", err) },
		})
	}))
}

// sources report what the components hold to the API of pod resources.
func (p *placement) sources() (out []podresources.Source) {
	if p.cpus != nil {
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
