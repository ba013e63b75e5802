package kubelet

import (
	"cmp"
	"slices"
	"time"

	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/metrics/prometheus/statsmetrics"
	"github.com/kubeletkit/kubeletkit/node/cgroup"
	"github.com/kubeletkit/kubeletkit/node/stats"
	"github.com/kubeletkit/kubeletkit/server"
)

// addStats adds the usage of the node and its pods to the options of the agent and of its ports.
func addStats(s *config.Settings, opts *kubeletkit.Options, cgroups *cgroup.Pods, killed func(cgroup string) uint64,
	m *metrics, sopts *server.Options) error {
	copts := stats.Options{RootDir: s.RootDir, PodLogsDir: s.PodLogsDir}
	if cgroups != nil {
		copts.PodCgroup, copts.NodeCgroups = cgroups.Parent, nodeCgroups(s, cgroups)
	}
	collector, err := stats.New(opts.Runtime, copts)
	if err != nil {
		return err
	}
	opts.Join = append(opts.Join, collector)
	if _, err := statsmetrics.NewDisk(m.registry, collector.Disk); err != nil {
		return err
	}
	sopts.Stats, sopts.ResourceMetrics = collector.Summary, statsmetrics.Resource(collector)
	sopts.CadvisorMetrics = statsmetrics.Cadvisor(collector, statsmetrics.CadvisorOptions{OOMEvents: killed})
	return nil
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
