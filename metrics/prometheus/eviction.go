package prommetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/eviction"
)

// Eviction is an [eviction.Metrics] with kubelet's names.
type Eviction struct {
	eviction.NopMetrics

	evictions *prometheus.CounterVec
	age       *prometheus.HistogramVec
}

var _ eviction.Metrics = (*Eviction)(nil)

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

// Evicted implements [eviction.Metrics].
func (m *Eviction) Evicted(s eviction.Signal, age time.Duration) {
	m.evictions.WithLabelValues(string(s)).Inc()
	m.age.WithLabelValues(string(s)).Observe(age.Seconds())
}
