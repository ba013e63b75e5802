package main

import (
	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/cgroup"
	"github.com/kubeletkit/kubeletkit/node/oom"
	"github.com/kubeletkit/kubeletkit/node/swap"
)

// addMemory adds what pods may use of the node's swap, and what is reported if the kernel kills their processes for
// lack of memory. cgroups is nil if pods have none. It returns the number of such kills at the limit of a cgroup, for
// an agent that was made.
func addMemory(opts *kubeletkit.Options, s *config.Settings, cgroups *cgroup.Pods,
	log logr.Logger) (killed func(cgroup string) uint64, err error) {
	limiter, err := swap.New(swap.Options{Behavior: swap.Behavior(s.MemorySwap.SwapBehavior),
		Logger: log.WithName("swap")})
	if err != nil {
		return nil, err
	}
	var watcher *oom.Watcher
	opts.Join = append(opts.Join, limiter,
		kubeletkit.WithAgent(func(agent *kubeletkit.Agent) (lifecycle.Component, error) {
			oopts := oom.Options{Event: agent.Parts().Event, Record: agent.Parts().Record, Logger: log.WithName("oom")}
			if cgroups != nil {
				oopts.PodCgroup = cgroups.Parent
			}
			var err error
			watcher, err = oom.New(oopts)
			return watcher, err
		}))
	return func(cgroup string) uint64 { return watcher.Events(cgroup) }, nil
}
