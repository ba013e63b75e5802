// Package collector has what the metrics of all packages are built with.
package collector

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Group is several collectors that are registered as one: all or none.
type Group []prometheus.Collector

// Describe implements [prometheus.Collector].
func (g Group) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range g {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (g Group) Collect(ch chan<- prometheus.Metric) {
	for _, c := range g {
		c.Collect(ch)
	}
}

// Register registers the group. part is what the metrics are about.
func Register(reg prometheus.Registerer, part string, g Group) error {
	if err := reg.Register(g); err != nil {
		return fmt.Errorf("registering the metrics of the %s: %w; each needs a registry, or a label, of its own", part,
			err)
	}
	return nil
}

// Kubelet returns the options of one of kubelet's metrics. The word in brackets is how
// Kubelet shows that Kubernetes does not promise to keep it.
func Kubelet(name, help string) prometheus.Opts {
	return prometheus.Opts{Subsystem: "kubelet", Name: name, Help: "[ALPHA] " + help}
}

// Own returns the options of a metric that kubelet has no equal of.
func Own(subsystem, name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: "kubeletkit", Subsystem: subsystem, Name: name, Help: help}
}

// HistogramOpts adds buckets; nil means those of Prometheus.
func HistogramOpts(o prometheus.Opts, buckets []float64) prometheus.HistogramOpts {
	if buckets == nil {
		buckets = prometheus.DefBuckets
	}
	return prometheus.HistogramOpts{Namespace: o.Namespace, Subsystem: o.Subsystem, Name: o.Name,
		Help: o.Help, Buckets: buckets}
}

// Counter returns a counter.
func Counter(o prometheus.Opts) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts(o))
}

// Counters returns a counter for each value of the labels.
func Counters(o prometheus.Opts, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts(o), labels)
}

// Gauge returns a gauge.
func Gauge(o prometheus.Opts) prometheus.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts(o)) }

// Gauges returns a gauge for each value of the labels.
func Gauges(o prometheus.Opts, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts(o), labels)
}
