package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/config"
	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/metrics/prometheus/statsmetrics"
	"github.com/kubeletkit/kubeletkit/node/cgroup"
	"github.com/kubeletkit/kubeletkit/node/stats"
	"github.com/kubeletkit/kubeletkit/server"
)

// addStats adds the usage of the node and its pods to the agent and to its ports.
func addStats(s *config.Settings, agent *kubeletkit.Agent, cgroups *cgroup.Pods, killed func(cgroup string) uint64,
	m *metrics, opts *server.Options, log logr.Logger) error {
	node, err := s.NodeName()
	if err != nil {
		return err
	}
	parts := agent.Parts()
	sopts := stats.Options{NodeName: node, RootDir: s.RootDir, PodLogsDir: s.PodLogsDir, Logger: log.WithName("stats")}
	sopts.VolumeStats = parts.Volumes.VolumeStats
	if cgroups != nil {
		sopts.PodCgroup, sopts.NodeCgroups = cgroups.Parent, nodeCgroups(s, cgroups)
	}
	collector, err := stats.New(parts.Runtime, specs{agent}, sopts)
	if err != nil {
		return err
	}
	if err := prommetrics.RegisterNode(m.registry, node, client.ProgramVersion().String()); err != nil {
		return err
	}
	if _, err := statsmetrics.NewDisk(m.registry, collector.Disk); err != nil {
		return err
	}
	opts.Stats, opts.ResourceMetrics = collector.Summary, statsmetrics.Resource(collector)
	opts.CadvisorMetrics = statsmetrics.Cadvisor(collector, statsmetrics.CadvisorOptions{OOMEvents: killed})
	return agent.Add("stats", collector.Run)
}

// nodeCgroups returns the function that has the cgroups of the node: those of system containers, in kubelet's words,
// and of classes.
func nodeCgroups(s *config.Settings, cgroups *cgroup.Pods) func() []stats.NodeCgroup {
	started := time.Now()
	return func() []stats.NodeCgroup {
		above := cgroups.Above()
		list := []stats.NodeCgroup{
			{Name: statsv1alpha1.SystemContainerKubelet, Cgroup: cmp.Or(s.KubeletCgroups, stats.OwnCgroup()),
				Started: started},
			{Name: statsv1alpha1.SystemContainerRuntime, Cgroup: s.RuntimeCgroups},
			{Name: statsv1alpha1.SystemContainerMisc, Cgroup: s.SystemCgroups},
			{Name: statsv1alpha1.SystemContainerPods, Cgroup: above[0]},
		}
		for _, class := range above[1:] {
			list = append(list, stats.NodeCgroup{Cgroup: class})
		}
		return slices.DeleteFunc(list, func(c stats.NodeCgroup) bool { return c.Cgroup == "" })
	}
}

// specs is the agent without the statuses of its pods. Usage does not need them, and a pod with its
// status is a copy.
type specs struct{ *kubeletkit.Agent }

// Pods are those that are measured.
func (s specs) Pods() []*v1.Pod { return s.Parts().PodManager.Pods() }
