package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// GC has the metrics of package gc. kubelet has no metrics for its collector of dead containers; for
// images it has image_garbage_collected_total.
type GC struct {
	removed  *prometheus.CounterVec
	failed   prometheus.Counter
	duration prometheus.Histogram

	images        *prometheus.CounterVec
	imagesFailed  prometheus.Counter
	imageBytes    prometheus.Counter
	imageDuration prometheus.Histogram
}

// NewGC registers the metrics of one agent's garbage collector. The error names the metric
// that the registry refused; then none is registered.
func NewGC(reg prometheus.Registerer) (*GC, error) {
	m := &GC{
		removed: collector.Counters(collector.Own("gc", "removed_total", "What garbage collection removed, by "+
			"kind: container, sandbox or logs."), "kind"),
		failed: collector.Counter(collector.Own("gc", "failed_removals_total", "What garbage collection could not "+
			"remove; it is tried again.")),
		duration: prometheus.NewHistogram(collector.HistogramOpts(collector.Own("gc", "duration_seconds",
			"Duration in seconds of a garbage collection."), nil)),

		images: collector.Counters(collector.Kubelet("image_garbage_collected_total",
			"Total number of images garbage collected by the kubelet, whether through disk usage or image age."),
			"reason"),
		imagesFailed: collector.Counter(collector.Own("image_gc", "failed_removals_total",
			"Images that garbage collection could not remove.")),
		imageBytes: collector.Counter(collector.Own("image_gc", "freed_bytes_total",
			"Bytes by which the available space of the image file system has grown during garbage collections of images.")),
		imageDuration: prometheus.NewHistogram(collector.HistogramOpts(collector.Own("image_gc", "duration_seconds",
			"Duration in seconds of a garbage collection of images."), nil)),
	}
	if err := collector.Register(reg, "garbage collector", collector.Group{m.removed, m.failed, m.duration, m.images,
		m.imagesFailed, m.imageBytes, m.imageDuration}); err != nil {
		return nil, err
	}
	return m, nil
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of package gc.
func (m *GC) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case gc.Collection:
		m.removed.WithLabelValues("container").Add(float64(v.Containers))
		m.removed.WithLabelValues("sandbox").Add(float64(v.Sandboxes))
		m.removed.WithLabelValues("logs").Add(float64(v.LogDirs))
		m.failed.Add(float64(v.Failed))
		m.duration.Observe(v.Ended.Sub(v.Began).Seconds())
	case gc.ImageCollection:
		m.images.WithLabelValues(string(gc.ImageForAge)).Add(float64(v.ForAge))
		m.images.WithLabelValues(string(gc.ImageForSpace)).Add(float64(v.ForSpace))
		m.imagesFailed.Add(float64(v.Failed))
		m.imageBytes.Add(float64(v.Freed))
		m.imageDuration.Observe(v.Ended.Sub(v.Began).Seconds())
	}
}
