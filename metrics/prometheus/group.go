package prommetrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// group is several collectors that are registered as one: all or none.
type group []prometheus.Collector

// Describe implements [prometheus.Collector].
func (g group) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range g {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (g group) Collect(ch chan<- prometheus.Metric) {
	for _, c := range g {
		c.Collect(ch)
	}
}

// register registers the group. part is what the metrics are about.
func register(reg prometheus.Registerer, part string, g group) error {
	if err := reg.Register(g); err != nil {
		return fmt.Errorf("registering the metrics of the %s: %w; each needs a registry, or a label, of its own", part, err)
	}
	return nil
}

// kubelet returns the options of one of kubelet's metrics. The word in brackets is how
// kubelet shows that Kubernetes does not promise to keep it.
func kubelet(name, help string) prometheus.Opts {
	return prometheus.Opts{Subsystem: "kubelet", Name: name, Help: "[ALPHA] " + help}
}

// own returns the options of a metric that kubelet has no equal of.
func own(subsystem, name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: "kubeletkit", Subsystem: subsystem, Name: name, Help: help}
}

// histogramOpts adds buckets; nil means those of Prometheus.
func histogramOpts(o prometheus.Opts, buckets []float64) prometheus.HistogramOpts {
	if buckets == nil {
		buckets = prometheus.DefBuckets
	}
	return prometheus.HistogramOpts{Namespace: o.Namespace, Subsystem: o.Subsystem, Name: o.Name, Help: o.Help, Buckets: buckets}
}

func counter(o prometheus.Opts) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts(o))
}

func counters(o prometheus.Opts, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts(o), labels)
}

func gauge(o prometheus.Opts) prometheus.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts(o)) }

func gauges(o prometheus.Opts, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts(o), labels)
}
