package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
)

const startName = "process_start_time_seconds"

// RegisterStartTime registers process_start_time_seconds for a page without the other metrics of
// the process, if the time is known.
func RegisterStartTime(reg prometheus.Registerer) error {
	started, help, ok := startTime()
	if !ok {
		return nil
	}
	start := collector.Gauge(prometheus.Opts{Name: startName, Help: "[ALPHA] " + help})
	start.Set(started)
	return collector.Register(reg, "process", collector.Group{start})
}

// startTime returns the time at which the process began, in seconds since 1970, as Prometheus'
// client library finds it, and its help.
func startTime() (seconds float64, help string, ok bool) {
	process := prometheus.NewRegistry()
	if err := process.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return 0, "", false
	}
	families, err := process.Gather()
	if err != nil {
		return 0, "", false
	}
	for _, f := range families {
		if f.GetName() == startName {
			return f.GetMetric()[0].GetGauge().GetValue(), f.GetHelp(), true
		}
	}
	return 0, "", false
}
