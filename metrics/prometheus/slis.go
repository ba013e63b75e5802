package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
)

// SLIs counts the results of health checks, for kubelet's page /metrics/slis
// (k8s.io/component-base/metrics/prometheus/slis at 1.37). Its method HealthChecked is an option of package server.
type SLIs struct {
	last    *prometheus.GaugeVec
	results *prometheus.CounterVec
}

// NewSLIs registers the metrics of the health checks of one agent. The error names the metric that
// the registry refused; then none is registered. With kubelet they are on a page of their own, with
// process_start_time_seconds, see [RegisterStartTime].
func NewSLIs(reg prometheus.Registerer) (*SLIs, error) {
	s := &SLIs{
		last: collector.Gauges(prometheus.Opts{Name: "kubernetes_healthcheck",
			Help: "[STABLE] This metric records the result of a single healthcheck."}, "name", "type"),
		results: collector.Counters(prometheus.Opts{Name: "kubernetes_healthchecks_total",
			Help: "[STABLE] This metric records the results of all healthcheck."}, "name", "type", "status"),
	}
	if err := collector.Register(reg, "health checks", collector.Group{s.last, s.results}); err != nil {
		return nil, err
	}
	return s, nil
}

// HealthChecked counts the result of a check of /healthz.
func (s *SLIs) HealthChecked(check string, err error) {
	const kind = "healthz" // kubelet has no other checks
	healthy, status := 1.0, "success"
	if err != nil {
		healthy, status = 0, "error"
	}
	s.last.WithLabelValues(check, kind).Set(healthy)
	s.results.WithLabelValues(check, kind, status).Inc()
}
