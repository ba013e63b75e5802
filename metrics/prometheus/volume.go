package prommetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/volume"
)

// Volumes is a [volume.Metrics] under the name that kubelet has for operations of storage
// (pkg/volume/util/metrics.go at 1.36). Unlike there, each sync of a pod with volumes
// counts, since plugins find out themselves that a volume is ready.
type Volumes struct {
	volume.NopMetrics

	duration *prometheus.HistogramVec
}

var _ volume.Metrics = (*Volumes)(nil)

// NewVolumes registers the metrics of one agent's volumes. The error names the metric that
// the registry refused; then none is registered.
func NewVolumes(reg prometheus.Registerer) (*Volumes, error) {
	m := &Volumes{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "storage_operation_duration_seconds", Help: "[ALPHA] Storage operation duration",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"volume_plugin", "operation_name", "status", "migrated"})}
	if err := collector.Register(reg, "volumes", collector.Group{m.duration}); err != nil {
		return nil, err
	}
	return m, nil
}

// SetUp implements volume.Metrics.
func (m *Volumes) SetUp(plugin string, took time.Duration, err error) {
	m.observe(plugin, "volume_mount", took, err)
}

// TearDown implements volume.Metrics.
func (m *Volumes) TearDown(plugin string, took time.Duration, err error) {
	m.observe(plugin, "volume_unmount", took, err)
}

func (m *Volumes) observe(plugin, operation string, took time.Duration, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.duration.WithLabelValues(plugin, operation, status, "false").Observe(took.Seconds())
}
