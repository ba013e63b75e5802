package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// Status has the metrics of package status. kubelet_pod_status_sync_duration_seconds and
// kubelet_pod_start_duration_seconds are kubelet's.
type Status struct {
	latency prometheus.Histogram
	started prometheus.Histogram
	failed  prometheus.Counter
	hanging prometheus.Gauge
}

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

// Measure is a [runtime.MeasureFunc] that receives the measurements of package status.
func (m *Status) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case status.Delivered:
		m.latency.Observe(v.Latency.Seconds())
	case status.PodStarted:
		m.started.Observe(v.Took.Seconds())
	case status.DeliveryFailed:
		m.failed.Inc()
	case status.DeliveriesHanging:
		m.hanging.Set(float64(v.Calls))
	}
}
