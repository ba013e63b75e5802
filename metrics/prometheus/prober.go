package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Prober has the metrics of package prober. Its names, labels and values are kubelet's. As in kubelet
// they are served under /metrics/probes, so give it a registry of its own if /metrics is to
// have a bounded number of series. Two things differ: attempts that could not be made
// count with the result "unknown", and prober_probe_duration_seconds has failures, too.
type Prober struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewProber registers the metrics of one agent's prober. The error names the metric that
// the registry refused; then none is registered.
func NewProber(reg prometheus.Registerer) (*Prober, error) {
	m := &Prober{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "prober", Name: "probe_total",
			Help: "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "prober", Name: "probe_duration_seconds",
			Help: "[ALPHA] Duration in seconds for a probe response.", Buckets: prometheus.DefBuckets,
		}, []string{"probe_type", "container", "pod", "namespace"}),
	}
	if err := collector.Register(reg, "prober", collector.Group{m.total, m.duration}); err != nil {
		return nil, err
	}
	return m, nil
}

// kindLabel returns kubelet's value of the label probe_type; empty for an unknown kind.
func kindLabel(kind runtime.ProbeKind) string {
	switch kind {
	case runtime.StartupProbe:
		return "Startup"
	case runtime.LivenessProbe:
		return "Liveness"
	case runtime.ReadinessProbe:
		return "Readiness"
	default:
		return ""
	}
}

// resultLabel returns kubelet's value of the label result.
func resultLabel(o prober.Outcome) string {
	switch o {
	case prober.Success, prober.Warning:
		return "successful"
	case prober.Failure:
		return "failed"
	default:
		return "unknown"
	}
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of package prober.
func (m *Prober) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case prober.Attempt:
		p, kind := v.Probe, kindLabel(v.Probe.Kind)
		m.total.WithLabelValues(kind, resultLabel(v.Outcome), p.Container, p.Pod.Name, p.Pod.Namespace,
			string(p.Pod.UID)).Inc()
		m.duration.WithLabelValues(kind, p.Container, p.Pod.Name, p.Pod.Namespace).Observe(v.Took.Seconds())
	case prober.ProbeRemoved:
		p, kind := v.Probe, kindLabel(v.Probe.Kind)
		m.total.DeletePartialMatch(prometheus.Labels{"probe_type": kind, "container": p.Container,
			"pod_uid": string(p.Pod.UID)})
		m.duration.DeleteLabelValues(kind, p.Container, p.Pod.Name, p.Pod.Namespace)
	}
}
