package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
)

// metrics are those of one agent, in a registry of their own.
type metrics struct {
	pleg *prommetrics.PLEG
	// handler answers /metrics.
	handler http.Handler
}

// newMetrics makes the metrics that kubelet has, as far as there are any here: those of
// the process, those of Go, and those of the parts.
func newMetrics() (*metrics, error) {
	reg := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)),
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	pleg, err := prommetrics.NewPLEG(reg)
	if err != nil {
		return nil, err
	}
	return &metrics{pleg: pleg, handler: promhttp.HandlerFor(reg, promhttp.HandlerOpts{})}, nil
}
