package prommetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/shutdown"
	"github.com/kubeletkit/kubeletkit/runtime"
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

// Measure is a [runtime.MeasureFunc] that receives the measurements of package shutdown.
func (m *Shutdown) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case shutdown.Shutdown:
		m.start.Set(unixSeconds(v.Start))
		m.end.Set(unixSeconds(v.End))
	}
}

// unixSeconds returns whole seconds since 1970, 0 for the zero time.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
