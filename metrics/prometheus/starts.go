package prommetrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// PodStarts has kubelet's metrics of how long pods of an API server take to start, from their creation until the API
// server has accepted a status in which all containers run. kubelet waits until a watch shows that status.
type PodStarts struct {
	total, sli   *prometheus.HistogramVec // as there, of no labels: a page without pods has none
	firstNetwork prometheus.Gauge

	mu    sync.Mutex
	pulls map[types.UID][]interval // of pods that have not started; nil after that
	// seen means that a pod with a network of its own has started.
	seen bool
}

type interval struct{ begin, end time.Time }

// NewPodStarts registers the metrics of the starts of the pods of one agent. The error names the metric that the
// registry refused; then none is registered.
func NewPodStarts(reg prometheus.Registerer) (*PodStarts, error) {
	const since = "measured from pod creation timestamp to when all its containers are reported as started and " +
		"observed via watch"
	buckets := []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200,
		1800, 2700, 3600}
	m := &PodStarts{
		total: prometheus.NewHistogramVec(collector.HistogramOpts(collector.Kubelet("pod_start_total_duration_seconds",
			"Duration in seconds to start a pod since creation, including time to pull images and run init "+
				"containers, "+since), buckets), nil),
		sli: prometheus.NewHistogramVec(collector.HistogramOpts(collector.Kubelet("pod_start_sli_duration_seconds",
			"Duration in seconds to start a pod, excluding time to pull images and run init containers, "+since),
			buckets), nil),
		firstNetwork: collector.Gauge(prometheus.Opts{Subsystem: "kubelet",
			Name: "first_network_pod_start_sli_duration_seconds",
			Help: "[INTERNAL] Duration in seconds to start the first network pod, excluding time to pull images and " +
				"run init containers, " + since}),
		pulls: map[types.UID][]interval{},
	}
	return m, collector.Register(reg, "starts of pods", collector.Group{m.total, m.sli, m.firstNetwork})
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of packages status, images and podworkers.
func (m *PodStarts) Measure(v runtime.Measurement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch v := v.(type) {
	case images.Pull:
		if pulls, known := m.pulls[v.Pod.UID]; pulls != nil || !known {
			now := time.Now()
			m.pulls[v.Pod.UID] = append(pulls, interval{now.Add(-v.Took), now})
		}
	case status.StartDelivered:
		m.started(v)
	case podworkers.Call:
		if v.Phase == podworkers.PhaseTerminated {
			delete(m.pulls, v.Pod.UID)
		}
	}
}

func (m *PodStarts) started(s status.StartDelivered) {
	uid := s.Pod.UID
	total := s.At.Sub(s.Pod.CreationTimestamp.Time)
	sli := total - sum(m.pulls[uid]) - initTime(s.Status)
	m.pulls[uid] = nil
	m.total.WithLabelValues().Observe(total.Seconds())
	if stateful(s.Pod) {
		return
	}
	m.sli.WithLabelValues().Observe(sli.Seconds())
	if !s.Pod.Spec.HostNetwork && !m.seen {
		m.seen = true
		m.firstNetwork.Set(sli.Seconds())
	}
}

// sum returns the time that the intervals cover.
func sum(list []interval) (covered time.Duration) {
	slices.SortFunc(list, func(a, b interval) int { return a.begin.Compare(b.begin) })
	var end time.Time
	for _, i := range list {
		if i.begin.Before(end) {
			i.begin = end
		}
		if i.end.After(i.begin) {
			covered += i.end.Sub(i.begin)
			end = i.end
		}
	}
	return covered
}

// initTime returns how long the init containers ran that have ended.
func initTime(s *v1.PodStatus) (took time.Duration) {
	for _, c := range s.InitContainerStatuses {
		if t := c.State.Terminated; t != nil {
			took += max(0, t.FinishedAt.Sub(t.StartedAt.Time))
		}
	}
	return took
}

// stateful reports whether the pod has a volume that the definition of the SLI leaves out.
func stateful(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil
	})
}
