package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/logs"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Logs has the metrics of package logs. kubelet has no metrics for the rotation of logs.
type Logs struct {
	rotated, failed, uncompressed prometheus.Counter
}

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

// Measure is a [runtime.MeasureFunc] that receives the measurements of package logs.
func (m *Logs) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case logs.Rotated:
		if v.Err != nil {
			m.failed.Inc()
		} else {
			m.rotated.Inc()
		}
	case logs.Compressed:
		if v.Err != nil {
			m.uncompressed.Inc()
		}
	}
}
