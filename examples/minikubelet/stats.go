package main

import (
	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/metrics/prometheus/statsmetrics"
	"github.com/kubeletkit/kubeletkit/resources/cgroup"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/stats"
)

// addStats adds the usage of the node and its pods to the agent and to its ports.
func addStats(s *config.Settings, agent *kubeletkit.Agent, cgroups *cgroup.Pods, m *metrics, opts *server.Options, log logr.Logger) error {
	node, err := s.NodeName()
	if err != nil {
		return err
	}
	parts := agent.Parts()
	sopts := stats.Options{NodeName: node, RootDir: s.RootDir, PodLogsDir: s.PodLogsDir, Logger: log.WithName("stats")}
	sopts.VolumeStats = parts.Volumes.VolumeStats
	if cgroups != nil {
		sopts.PodCgroup = cgroups.Parent
	}
	collector, err := stats.New(parts.Runtime, specs{agent}, sopts)
	if err != nil {
		return err
	}
	if err := prommetrics.RegisterNode(m.registry, node, client.ProgramVersion().String()); err != nil {
		return err
	}
	if _, err := statsmetrics.NewDisk(m.registry, collector); err != nil {
		return err
	}
	opts.Stats, opts.ResourceMetrics, opts.CadvisorMetrics = collector, statsmetrics.Resource(collector), statsmetrics.Cadvisor(collector)
	return agent.Add("stats", collector.Run)
}

// specs is the agent without the statuses of its pods. Usage does not need them, and a pod with its
// status is a copy.
type specs struct{ *kubeletkit.Agent }

// Pods implements [stats.Pods].
func (s specs) Pods() []*v1.Pod { return s.Parts().PodManager.Pods() }
