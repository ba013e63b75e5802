package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/eviction"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Eviction has the metrics of package eviction with kubelet's names.
type Eviction struct {
	evictions *prometheus.CounterVec
	age       *prometheus.HistogramVec
}

// NewEviction registers the metrics of one agent's evictions. The error names the metric that the registry refused;
// then none is registered.
func NewEviction(reg prometheus.Registerer) (*Eviction, error) {
	m := &Eviction{
		evictions: collector.Counters(collector.Kubelet("evictions", "Cumulative number of pod evictions by "+
			"eviction signal"), "eviction_signal"),
		age: prometheus.NewHistogramVec(collector.HistogramOpts(collector.Kubelet("eviction_stats_age_seconds",
			"Time between when stats are collected, and when pod is evicted based on those stats by eviction signal"),
			nil), []string{"eviction_signal"}),
	}
	if err := collector.Register(reg, "evictions", collector.Group{m.evictions, m.age}); err != nil {
		return nil, err
	}
	return m, nil
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of package eviction.
func (m *Eviction) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case eviction.Eviction:
		m.evictions.WithLabelValues(string(v.Signal)).Inc()
		m.age.WithLabelValues(string(v.Signal)).Observe(v.Age.Seconds())
	}
}
