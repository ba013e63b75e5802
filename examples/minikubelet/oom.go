package main

import (
	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/resources/oom"
	"github.com/kubeletkit/kubeletkit/resources/swap"
)

// addMemory adds what pods may use of the node's swap, and what is reported if the kernel kills their processes for lack of memory.
func addMemory(s *config.Settings, opts *kubeletkit.Options, log logr.Logger) error {
	limiter, err := swap.New(swap.Options{Behavior: swap.Behavior(s.MemorySwap.SwapBehavior), Logger: log.WithName("swap")})
	opts.Join = append(opts.Join, limiter, kubeletkit.WithAgent(func(agent *kubeletkit.Agent) (lifecycle.Component, error) {
		return oom.New(oom.Options{Event: agent.Parts().Event, Record: agent.Parts().Record, Logger: log.WithName("oom")})
	}))
	return err
}
