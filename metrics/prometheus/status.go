package prommetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/status"
)

// Status is a [status.Metrics]. kubelet_pod_status_sync_duration_seconds and
// kubelet_pod_start_duration_seconds are kubelet's.
type Status struct {
	status.NopMetrics

	latency prometheus.Histogram
	started prometheus.Histogram
	failed  prometheus.Counter
	hanging prometheus.Gauge
}

var _ status.Metrics = (*Status)(nil)

// NewStatus registers the metrics of one agent's status manager. The error names the
// metric that the registry refused; then none is registered.
func NewStatus(reg prometheus.Registerer) (*Status, error) {
	m := &Status{
		latency: prometheus.NewHistogram(collector.HistogramOpts(collector.Kubelet("pod_status_sync_duration_seconds",
			"Duration in seconds to sync a pod status update. Measures time from detection of a change to pod "+
				"status until the API is successfully updated for that pod, even if multiple intevening changes to "+
				"pod status occur."),
			[]float64{0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60})),
		// From the first status of the pod to its phase Running, as there.
		started: prometheus.NewHistogram(collector.HistogramOpts(collector.Kubelet("pod_start_duration_seconds",
			"Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run"),
			[]float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200,
				1800, 2700, 3600})),
		failed: collector.Counter(collector.Own("status", "failed_deliveries_total", "Deliveries of pod statuses "+
			"that failed and are repeated.")),
		hanging: collector.Gauge(collector.Own("status", "hanging_deliveries", "Deliveries of pod statuses that "+
			"have not returned though their deadline has passed.")),
	}
	if err := collector.Register(reg, "status manager", collector.Group{m.latency, m.started, m.failed,
		m.hanging}); err != nil {
		return nil, err
	}
	return m, nil
}

// StatusDelivered implements status.Metrics.
func (m *Status) StatusDelivered(latency time.Duration) { m.latency.Observe(latency.Seconds()) }

// PodStarted implements status.Metrics.
func (m *Status) PodStarted(took time.Duration) { m.started.Observe(took.Seconds()) }

// DeliveryFailed implements status.Metrics.
func (m *Status) DeliveryFailed() { m.failed.Inc() }

// DeliveriesHanging implements status.Metrics.
func (m *Status) DeliveriesHanging(n int) { m.hanging.Set(float64(n)) }
