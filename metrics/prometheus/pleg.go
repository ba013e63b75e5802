package prommetrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// PLEG has the metrics of package pleg. Names, types, buckets and help are those of kubelet 1.37
// (pkg/kubelet/metrics/metrics.go), and the values mean what they mean there, except:
//
//   - kubelet_pleg_relist_duration_seconds is the time of the list call; in kubelet it
//     includes the inspections of all pods that changed.
//   - kubelet_pleg_last_seen_seconds is now until the next relist is overdue, however long
//     the generator needs none; in kubelet it is when the last relist began.
//   - kubelet_running_pods and kubelet_running_containers follow each change that is
//     seen; in kubelet they are of the last relist.
//   - kubelet_pleg_discard_events stays 0, since nothing is dropped.
//   - kubelet_evented_pleg_connection_success_count counts streams that are known to be
//     established; kubelet counts attempts, too.
//   - kubelet_running_containers goes back to 0 when the last container of a state is
//     gone; in kubelet it stays.
//   - kubeletkit_pleg_missed_pods_total is not kubelet's: its rate shows that a runtime
//     does not send all events.
type PLEG struct {
	relistDuration, relistInterval prometheus.Histogram
	lastSeen                       prometheus.GaugeFunc
	seen                           atomic.Pointer[span]
	discarded                      prometheus.Counter
	connected, connectErrors       prometheus.Counter
	eventAge                       prometheus.Histogram
	runningPods                    prometheus.Gauge
	containers                     *prometheus.GaugeVec
	missed                         prometheus.Counter
}

// NewPLEG registers the metrics of one generator. The error names the metric that
// the registry refused; then none is registered.
func NewPLEG(reg prometheus.Registerer) (*PLEG, error) {
	m := &PLEG{
		relistDuration: histogram("pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG."),
		relistInterval: histogram("pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG."),
		discarded: prometheus.NewCounter(prometheus.CounterOpts(collector.Kubelet("pleg_discard_events",
			"The number of discard events in PLEG."))),
		connected: prometheus.NewCounter(
			prometheus.CounterOpts(collector.Kubelet("evented_pleg_connection_success_count",
				"The number of times a streaming client was obtained to receive CRI Events."))),
		connectErrors: prometheus.NewCounter(
			prometheus.CounterOpts(collector.Kubelet("evented_pleg_connection_error_count",
				"The number of errors encountered during the establishment of streaming connection with the CRI runtime."))),
		eventAge: histogram("evented_pleg_connection_latency_seconds",
			"The latency of streaming connection with the CRI runtime, measured in seconds."),
		runningPods: prometheus.NewGauge(prometheus.GaugeOpts(collector.Kubelet("running_pods",
			"Number of pods that have a running pod sandbox"))),
		containers: prometheus.NewGaugeVec(prometheus.GaugeOpts(collector.Kubelet("running_containers",
			"Number of containers currently running")), []string{"container_state"}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "kubeletkit", Subsystem: "pleg", Name: "missed_pods_total",
			Help: "Pods that a relist found changed without a report of the healthy stream of CRI events.",
		}),
	}
	m.lastSeen = prometheus.NewGaugeFunc(prometheus.GaugeOpts(collector.Kubelet("pleg_last_seen_seconds",
		"Timestamp in seconds when PLEG was last seen active.")), m.lastSeenAt)
	if err := collector.Register(reg, "pod lifecycle event generator", collector.Group{
		m.relistDuration, m.relistInterval, m.lastSeen, m.discarded, m.connected, m.connectErrors, m.eventAge,
		m.runningPods, m.containers, m.missed,
	}); err != nil {
		return nil, err
	}
	return m, nil
}

func histogram(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(collector.HistogramOpts(collector.Kubelet(name, help), nil))
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of package pleg.
func (m *PLEG) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case pleg.Relisted:
		m.relisted(v)
	case pleg.Counts:
		m.counted(v)
	case pleg.Connected:
		m.streamed(v.Err)
	case pleg.Hinted:
		if v.Age > 0 {
			m.eventAge.Observe(v.Age.Seconds())
		}
	case pleg.Missed:
		m.missed.Add(float64(v.Pods))
	}
}

func (m *PLEG) relisted(r pleg.Relisted) {
	m.relistDuration.Observe(r.Took.Seconds())
	if r.Interval > 0 {
		m.relistInterval.Observe(r.Interval.Seconds())
	}
	if r.Err != nil {
		// It was not well any more when this began, whatever was expected.
		if last := m.seen.Load(); last != nil && r.Began.Before(last.due) {
			m.seen.Store(&span{last.began, r.Began})
		}
		return
	}
	m.seen.Store(&span{r.Began, r.Due})
}

// span is from when a relist that succeeded began until when the next is due.
type span struct{ began, due time.Time }

// lastSeenAt is the time in seconds until which all is known to be well.
func (m *PLEG) lastSeenAt() float64 {
	seen := m.seen.Load()
	if seen == nil {
		return 0
	}
	at := time.Now()
	if seen.due.Before(at) {
		at = seen.due
	}
	if at.Before(seen.began) {
		at = seen.began
	}
	return float64(at.Unix())
}

func (m *PLEG) counted(c pleg.Counts) {
	m.runningPods.Set(float64(c.Pods))
	for state, n := range map[runtime.ContainerState]int{
		runtime.ContainerCreated: c.Created, runtime.ContainerRunning: c.Running,
		runtime.ContainerExited: c.Exited, runtime.ContainerUnknown: c.Unknown,
	} {
		m.containers.WithLabelValues(string(state)).Set(float64(n))
	}
}

func (m *PLEG) streamed(err error) {
	if err != nil {
		m.connectErrors.Inc()
		return
	}
	m.connected.Inc()
}
