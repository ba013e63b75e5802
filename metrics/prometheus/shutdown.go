package prommetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
)

// Shutdown has the metrics of the graceful shutdown of the node. It is a Metrics of package node/shutdown.
type Shutdown struct{ start, end prometheus.Gauge }

// NewShutdown registers the metrics of the shutdowns of one node. The error names the metric that the registry
// refused; then none is registered.
func NewShutdown(reg prometheus.Registerer) (*Shutdown, error) {
	m := &Shutdown{
		start: collector.Gauge(collector.Kubelet("graceful_shutdown_start_time_seconds",
			"Last graceful shutdown start time since unix epoch in seconds")),
		end: collector.Gauge(collector.Kubelet("graceful_shutdown_end_time_seconds", "Last graceful shutdown end "+
			"time since unix epoch in seconds")),
	}
	if err := collector.Register(reg, "graceful shutdown", collector.Group{m.start, m.end}); err != nil {
		return nil, err
	}
	return m, nil
}

// NodeShutdown implements Metrics of package node/shutdown.
func (m *Shutdown) NodeShutdown(start, end time.Time) {
	m.start.Set(unixSeconds(start))
	m.end.Set(unixSeconds(end))
}

// unixSeconds returns whole seconds since 1970, 0 for the zero time.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
