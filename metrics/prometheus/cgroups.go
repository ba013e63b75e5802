package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Cgroups has kubelet_cgroup_manager_duration_seconds.
type Cgroups struct{ duration *prometheus.HistogramVec }

// NewCgroups registers the metrics of the cgroups of one agent. The error names the metric that the registry refused;
// then none is registered.
func NewCgroups(reg prometheus.Registerer) (*Cgroups, error) {
	m := &Cgroups{prometheus.NewHistogramVec(collector.HistogramOpts(collector.Kubelet(
		"cgroup_manager_duration_seconds", "Duration in seconds for cgroup manager operations. Broken down by method."),
		nil), []string{"operation_type"})}
	return m, collector.Register(reg, "cgroups", collector.Group{m.duration})
}

// Measure is a [runtime.MeasureFunc] that receives each [runtime.CgroupChange].
func (m *Cgroups) Measure(v runtime.Measurement) {
	if c, ok := v.(runtime.CgroupChange); ok {
		m.duration.WithLabelValues(c.Operation).Observe(c.Took.Seconds())
	}
}
