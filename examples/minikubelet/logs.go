package main

import (
	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/logs"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// joinLogs adds the rotation of the logs of containers.
func joinLogs(opts *kubeletkit.Options, s *config.Settings, rt runtime.LogReopener, log logr.Logger) error {
	lopts, ok := s.LogOptions()
	if !ok {
		return nil
	}
	lopts.Logger = log.WithName("logs")
	manager, err := logs.New(rt, lopts)
	if err != nil {
		return err
	}
	opts.Join = append(opts.Join, manager)
	return nil
}
