package prommetrics

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Images has the metrics of package images. Names, types, buckets and help are kubelet's
// (pkg/kubelet/metrics/metrics.go and pkg/kubelet/images at 1.37).
type Images struct {
	duration         *prometheus.HistogramVec
	requests, checks *prometheus.CounterVec
	intents, records prometheus.Gauge
}

// NewImages registers the metrics of one agent's pulls. The error names the metric that the registry refused; then none
// is registered.
func NewImages(reg prometheus.Registerer) (*Images, error) {
	m := &Images{
		duration: prometheus.NewHistogramVec(collector.HistogramOpts(collector.Kubelet("image_pull_duration_seconds",
			"Duration in seconds to pull an image."),
			[]float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}),
			[]string{"image_size_in_bytes"}),
		requests: collector.Counters(collector.Kubelet("image_manager_ensure_image_requests_total",
			"Number of ensure-image requests processed by the kubelet."),
			"pull_policy", "present_locally", "pull_required"),
		checks: collector.Counters(collector.Kubelet("imagemanager_image_mustpull_checks_total",
			"Counter for how many times kubelet checked whether credentials need to be re-verified to access an image"),
			"result"),
		intents: collector.Gauge(collector.Kubelet("imagemanager_ondisk_pullintents",
			"Number of ImagePullIntents stored on disk.")),
		records: collector.Gauge(collector.Kubelet("imagemanager_ondisk_pulledrecords",
			"Number of ImagePulledRecords stored on disk.")),
	}
	if err := collector.Register(reg, "images", collector.Group{m.duration, m.requests, m.checks, m.intents,
		m.records}); err != nil {
		return nil, err
	}
	return m, nil
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of package images.
func (m *Images) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case images.Pull: // it counts once, whatever the number of requests that have shared it
		if !v.Shared {
			m.duration.WithLabelValues(sizeLabel(v.Size)).Observe(v.Took.Seconds())
		}
	case images.Ensured:
		m.requests.WithLabelValues(strings.ToLower(string(v.Policy)), boolLabel(v.Present), boolLabel(v.Pulled)).Inc()
	case images.Verified:
		m.checks.WithLabelValues(string(v.Decision)).Inc()
	case images.Recorded:
		m.intents.Set(float64(v.Intents))
		m.records.Set(float64(v.Records))
	}
}

func boolLabel(b *bool) string {
	if b == nil {
		return "unknown"
	}
	return strconv.FormatBool(*b)
}

const (
	mib = 1 << 20
	gib = 1 << 30
)

// sizeLabel returns kubelet's value of the label image_size_in_bytes.
func sizeLabel(bytes int64) string {
	if bytes == 0 {
		return "N/A"
	}
	label := ""
	for _, bucket := range []struct {
		above int64
		label string
	}{
		{0, "0-10MB"}, {10 * mib, "10MB-100MB"}, {100 * mib, "100MB-500MB"}, {500 * mib, "500MB-1GB"},
		{1 * gib, "1GB-5GB"},
		{5 * gib, "5GB-10GB"}, {10 * gib, "10GB-20GB"}, {20 * gib, "20GB-30GB"}, {30 * gib, "30GB-40GB"},
		{40 * gib, "40GB-60GB"},
		{60 * gib, "60GB-100GB"}, {100 * gib, "GT100GB"},
	} {
		if bytes > bucket.above {
			label = bucket.label
		}
	}
	return label
}
