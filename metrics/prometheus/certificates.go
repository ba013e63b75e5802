package prommetrics

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
)

// Certificate has the metrics of a node's client certificate, or of its serving certificate. It is a
// credentials.Metrics.
type Certificate struct {
	expires atomic.Pointer[time.Time] // nil: there is none
	failed  prometheus.Counter
	rotated prometheus.Histogram // nil for clients, as in kubelet
}

// NewClientCertificate registers the metrics of the client certificate of one node. The error names
// the metric that the registry refused; then none is registered.
func NewClientCertificate(reg prometheus.Registerer) (*Certificate, error) {
	m := &Certificate{failed: collector.Counter(collector.Kubelet("certificate_manager_client_expiration_renew_errors",
		"Counter of certificate renewal errors."))}
	ttl := m.ttl("certificate_manager_client_ttl_seconds",
		"Gauge of the TTL (time-to-live) of the Kubelet's client certificate. The value is in seconds until "+
			"certificate expiry (negative if already expired). If client certificate is invalid or unused, the "+
			"value will be +INF.")
	if err := collector.Register(reg, "client certificate", collector.Group{ttl, m.failed}); err != nil {
		return nil, err
	}
	return m, nil
}

// NewServingCertificate registers the metrics of the certificate that one node serves. The error
// names the metric that the registry refused; then none is registered.
func NewServingCertificate(reg prometheus.Registerer) (*Certificate, error) {
	const minute, hour, day = 60, 3600, 24 * 3600
	m := &Certificate{
		failed: collector.Counter(collector.Kubelet("server_expiration_renew_errors",
			"Counter of certificate renewal errors.")),
		rotated: prometheus.NewHistogram(
			collector.HistogramOpts(collector.Kubelet("certificate_manager_server_rotation_seconds",
				"Histogram of the number of seconds the previous certificate lived before being rotated."),
				[]float64{minute, hour, 4 * hour, day, 7 * day, 30 * day, 90 * day, 180 * day,
					360 * day, 4 * 360 * day})),
	}
	ttl := m.ttl("certificate_manager_server_ttl_seconds",
		"Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds "+
			"until certificate expiry (negative if already expired). If serving certificate is invalid or unused, "+
			"the value will be +INF.")
	if err := collector.Register(reg, "serving certificate", collector.Group{ttl, m.failed, m.rotated}); err != nil {
		return nil, err
	}
	return m, nil
}

// ttl returns the time for which the certificate is still valid, in whole seconds.
func (m *Certificate) ttl(name, help string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts(collector.Kubelet(name, help)), func() float64 {
		if at := m.expires.Load(); at != nil {
			return math.Trunc(time.Until(*at).Seconds())
		}
		return math.Inf(1)
	})
}

// CertificateExpires implements credentials.Metrics.
func (m *Certificate) CertificateExpires(at time.Time) { m.expires.Store(&at) }

// CertificateRotated implements credentials.Metrics.
func (m *Certificate) CertificateRotated(lived time.Duration) {
	if m.rotated != nil {
		m.rotated.Observe(lived.Seconds())
	}
}

// RenewalFailed implements credentials.Metrics.
func (m *Certificate) RenewalFailed() { m.failed.Inc() }
