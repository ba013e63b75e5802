package prommetrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// PodConfig has the metrics of package podconfig. kubelet has no metrics of its pod configuration.
type PodConfig struct {
	sources, seen prometheus.Gauge
	failed        *prometheus.CounterVec
	changes, pods *prometheus.CounterVec
	rejected      *prometheus.CounterVec
}

// NewPodConfig registers the metrics of one agent's pod configuration. The error names the
// metric that the registry refused; then none is registered.
func NewPodConfig(reg prometheus.Registerer) (*PodConfig, error) {
	m := &PodConfig{
		sources: collector.Gauge(collector.Own("podconfig", "sources", "Sources of pods that are registered.")),
		seen: collector.Gauge(collector.Own("podconfig", "seen_sources", "Sources of pods that have delivered "+
			"since they were registered.")),
		failed: collector.Counters(collector.Own("podconfig", "source_failures_total", "Runs of a source of pods "+
			"that failed and are repeated."), "source"),
		changes: collector.Counters(collector.Own("podconfig", "changes_total", "Changes of the desired pods, by "+
			"source and operation."), "source", "operation"),
		pods: collector.Counters(collector.Own("podconfig", "changed_pods_total", "Pods in the changes of the "+
			"desired pods, by source and operation."), "source", "operation"),
		rejected: collector.Counters(collector.Own("podconfig", "rejected_pods_total",
			"Pods that a source delivered and that cannot run."), "source"),
	}
	if err := collector.Register(reg, "pod configuration", collector.Group{m.sources, m.seen, m.failed, m.changes,
		m.pods, m.rejected}); err != nil {
		return nil, err
	}
	return m, nil
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of package podconfig.
func (m *PodConfig) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case podconfig.SourceCounts:
		m.sources.Set(float64(v.Registered))
		m.seen.Set(float64(v.Seen))
	case podconfig.SourceFailed:
		m.failed.WithLabelValues(v.Source).Inc()
	case podconfig.ChangeDelivered:
		operation := strings.ToLower(v.Op.String())
		m.changes.WithLabelValues(v.Source, operation).Inc()
		m.pods.WithLabelValues(v.Source, operation).Add(float64(v.Pods))
	case podconfig.PodRejected:
		m.rejected.WithLabelValues(v.Source).Inc()
	}
}
