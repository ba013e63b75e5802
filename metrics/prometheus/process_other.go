//go:build !linux

package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// RegisterProcess registers the metrics of the process, which begin with process_, as Prometheus'
// client library has them.
func RegisterProcess(reg prometheus.Registerer) error {
	return reg.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}
