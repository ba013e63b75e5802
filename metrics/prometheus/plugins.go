package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
)

// RegisterPlugins registers kubelet's metric of plugins that register themselves. The functions return the sockets of
// plugins that are registered, and of all; they are called at each scrape. The error names the metric that the registry
// refused.
func RegisterPlugins(reg prometheus.Registerer, registered, all func() []string) error {
	desc := prometheus.NewDesc("plugin_manager_total_plugins", "[ALPHA] Number of plugins in Plugin Manager",
		[]string{"socket_path", "state"}, nil)
	return collector.Register(reg, "plugins", collector.Group{&pluginCount{registered, all, desc}})
}

type pluginCount struct {
	registered, all func() []string
	desc            *prometheus.Desc
}

func (c *pluginCount) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c *pluginCount) Collect(ch chan<- prometheus.Metric) {
	for state, sockets := range map[string][]string{"actual_state_of_world": c.registered(),
		"desired_state_of_world": c.all()} {
		for _, socket := range sockets {
			ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, 1, socket, state)
		}
	}
}
