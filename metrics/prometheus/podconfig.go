package prommetrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/podconfig"
)

// PodConfig is a [podconfig.Metrics]. kubelet has no metrics of its pod configuration.
type PodConfig struct {
	podconfig.NopMetrics

	sources, seen prometheus.Gauge
	failed        *prometheus.CounterVec
	changes, pods *prometheus.CounterVec
	rejected      *prometheus.CounterVec
}

var _ podconfig.Metrics = (*PodConfig)(nil)

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

// Sources implements podconfig.Metrics.
func (m *PodConfig) Sources(registered, seen int) {
	m.sources.Set(float64(registered))
	m.seen.Set(float64(seen))
}

// SourceFailed implements podconfig.Metrics.
func (m *PodConfig) SourceFailed(source string) { m.failed.WithLabelValues(source).Inc() }

// ChangeDelivered implements podconfig.Metrics.
func (m *PodConfig) ChangeDelivered(source string, op podconfig.Op, pods int) {
	operation := strings.ToLower(op.String())
	m.changes.WithLabelValues(source, operation).Inc()
	m.pods.WithLabelValues(source, operation).Add(float64(pods))
}

// PodRejected implements podconfig.Metrics.
func (m *PodConfig) PodRejected(source string) { m.rejected.WithLabelValues(source).Inc() }
