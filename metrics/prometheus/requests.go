package prommetrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
)

// Requests has the metrics of the requests to the ports of an agent. It is a server.RequestMetrics.
type Requests struct {
	total      *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	inflight   *prometheus.GaugeVec
	webSockets *prometheus.CounterVec
}

// NewRequests registers the metrics of the ports of one agent. The error names the metric that the
// registry refused; then none is registered.
func NewRequests(reg prometheus.Registerer) (*Requests, error) {
	labels := []string{"method", "path", "server_type", "long_running"}
	m := &Requests{
		total: collector.Counters(collector.Kubelet("http_requests_total", "Number of the http requests "+
			"received since the server started"), labels...),
		duration: prometheus.NewHistogramVec(
			collector.HistogramOpts(collector.Kubelet("http_requests_duration_seconds",
				"Duration in seconds to serve http requests"), nil), labels),
		inflight: collector.Gauges(collector.Kubelet("http_inflight_requests",
			"Number of the inflight http requests"), labels...),
		webSockets: collector.Counters(collector.Kubelet("websocket_streaming_requests_total",
			"Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet."),
			"subresource"),
	}
	if err := collector.Register(reg, "requests", collector.Group{m.total, m.duration, m.inflight,
		m.webSockets}); err != nil {
		return nil, err
	}
	return m, nil
}

// RequestBegan implements server.RequestMetrics.
func (m *Requests) RequestBegan(method, path string, readOnly, longRunning bool) (ended func()) {
	server := "readwrite"
	if readOnly {
		server = "readonly"
	}
	began, labels := time.Now(), []string{method, path, server, strconv.FormatBool(longRunning)}
	m.total.WithLabelValues(labels...).Inc()
	inflight := m.inflight.WithLabelValues(labels...)
	inflight.Inc()
	return func() {
		inflight.Dec()
		m.duration.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
	}
}

// WebSocketSession implements server.RequestMetrics.
func (m *Requests) WebSocketSession(subresource string) {
	m.webSockets.WithLabelValues(subresource).Inc()
}
