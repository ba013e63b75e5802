package main

import (
	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/logs"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// joinLogs adds the rotation of the logs of containers. metrics may be nil.
func joinLogs(opts *kubeletkit.Options, s *config.Settings, rt runtime.LogReopener, metrics logs.Metrics,
	log logr.Logger) {
	lopts, ok := s.LogOptions()
	if !ok {
		return
	}
	lopts.Metrics, lopts.Logger = metrics, log.WithName("logs")
	opts.Join = append(opts.Join, kubeletkit.WithAgent(func(agent *kubeletkit.Agent) (lifecycle.Component, error) {
		lopts.Record = agent.Parts().Record
		return logs.New(rt, lopts)
	}))
}
