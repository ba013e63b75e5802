package prommetrics

import (
	"errors"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// PodWorkers has the metrics of package podworkers. Names, types, buckets and help are kubelet's
// (pkg/kubelet/metrics/metrics.go at 1.37), except those that begin with kubeletkit_.
// kubelet_pod_worker_duration_seconds has the operations of kubelet: create, update, sync
// and kill.
type PodWorkers struct {
	duration *prometheus.HistogramVec
	start    prometheus.Histogram
	working  *prometheus.GaugeVec
	failures *prometheus.CounterVec
	panics   prometheus.Counter
	refused  prometheus.Counter

	mu      sync.Mutex
	counted map[workingLabels]int // what working has
}

// NewPodWorkers registers the metrics of one agent's pod workers. The error names the
// metric that the registry refused; then none is registered.
func NewPodWorkers(reg prometheus.Registerer) (*PodWorkers, error) {
	m := &PodWorkers{
		duration: prometheus.NewHistogramVec(collector.HistogramOpts(collector.Kubelet("pod_worker_duration_seconds",
			"Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync"), nil),
			[]string{"operation_type"}),
		start: prometheus.NewHistogram(collector.HistogramOpts(collector.Kubelet("pod_worker_start_duration_seconds",
			"Duration in seconds from kubelet seeing a pod to starting a worker."), nil)),
		working: collector.Gauges(collector.Kubelet("working_pods", "Number of pods the kubelet is actually "+
			"running, broken down by lifecycle phase, whether the pod is desired, orphaned, or runtime only (also "+
			"orphaned), and whether the pod is static. An orphaned pod has been removed from local configuration or "+
			"force deleted in the API and consumes resources that are not otherwise visible."), "lifecycle",
			"config", "static"),
		failures: collector.Counters(collector.Own("podworkers", "failed_calls_total", "Calls of the pod syncer "+
			"that failed and are repeated after a back-off, by operation type."), "operation_type"),
		panics: collector.Counter(collector.Own("podworkers", "panics_total", "Calls of the pod syncer that "+
			"panicked; each concerned one pod.")),
		refused: collector.Counter(collector.Own("podworkers", "terminal_errors_total",
			"Pods that a sync has failed for good.")),
	}
	if err := collector.Register(reg, "pod workers", collector.Group{m.duration, m.start, m.working, m.failures,
		m.panics, m.refused}); err != nil {
		return nil, err
	}
	return m, nil
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of package podworkers.
func (m *PodWorkers) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case podworkers.Call:
		m.called(v)
	case podworkers.Counts:
		m.count(v)
	}
}

func (m *PodWorkers) called(c podworkers.Call) {
	if !c.Received.IsZero() {
		m.duration.WithLabelValues(c.Operation()).Observe(c.Ended.Sub(c.Received).Seconds())
		if c.Phase == podworkers.PhaseSync && c.Type == podworkers.Create {
			m.start.Observe(c.Began.Sub(c.Received).Seconds())
		}
	}
	if c.Backoff > 0 {
		m.failures.WithLabelValues(c.Operation()).Inc()
	}
	if errors.As(c.Err, new(*runtime.PanicError)) {
		m.panics.Inc()
	}
	if c.Failure != nil {
		m.refused.Inc()
	}
}

func (m *PodWorkers) count(pods podworkers.Counts) {
	counts := map[workingLabels]int{}
	for kind, n := range pods {
		counts[labelsOf(kind)] += n
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.counted {
		if _, still := counts[l]; !still {
			m.working.DeleteLabelValues(l.lifecycle, l.config, l.static)
		}
	}
	for l, n := range counts {
		m.working.WithLabelValues(l.lifecycle, l.config, l.static).Set(float64(n))
	}
	m.counted = counts
}

// workingLabels are the labels of kubelet_working_pods.
type workingLabels struct{ lifecycle, config, static string }

func labelsOf(kind podworkers.PodKind) workingLabels {
	l := workingLabels{kind.Phase.String(), "desired", strconv.FormatBool(kind.Static)}
	switch {
	case !kind.HasConfig:
		l.config, l.static = "runtime_only", "unknown"
	case kind.Orphan:
		l.config = "orphan"
	}
	return l
}
