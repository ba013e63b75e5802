package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/logs"
)

// Logs is a [logs.Metrics]. kubelet has no metrics for the rotation of logs.
type Logs struct {
	logs.NopMetrics

	rotated, failed, uncompressed prometheus.Counter
}

var _ logs.Metrics = (*Logs)(nil)

// NewLogs registers the metrics of the rotation of one agent's logs. The error names the metric that the registry
// refused; then none is registered.
func NewLogs(reg prometheus.Registerer) (*Logs, error) {
	m := &Logs{
		rotated: collector.Counter(collector.Own("logs", "rotations_total",
			"Logs of containers that were rotated.")),
		failed: collector.Counter(collector.Own("logs", "failed_rotations_total", "Logs of containers that "+
			"could not be rotated; it is tried again.")),
		uncompressed: collector.Counter(collector.Own("logs", "failed_compressions_total", "Rotated logs that could "+
			"not be compressed; it is tried again.")),
	}
	if err := collector.Register(reg, "logs", collector.Group{m.rotated, m.failed, m.uncompressed}); err != nil {
		return nil, err
	}
	return m, nil
}

// Rotated implements [logs.Metrics].
func (m *Logs) Rotated(err error) {
	if err != nil {
		m.failed.Inc()
		return
	}
	m.rotated.Inc()
}

// Compressed implements [logs.Metrics].
func (m *Logs) Compressed(err error) {
	if err != nil {
		m.uncompressed.Inc()
	}
}
