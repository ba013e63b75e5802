package pleg

import (
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Metrics receives the measurements of a generator. Its methods are called one at a
// time, and nothing waits for them. Implementations embed [NopMetrics]. metrics/prometheus has one
// with the names of kubelet.
type Metrics interface {
	// Relisted reports a relist, after its list was compared:
	// kubelet_pleg_relist_duration_seconds, kubelet_pleg_relist_interval_seconds and
	// kubelet_pleg_last_seen_seconds.
	Relisted(Relisted)
	// Counted reports the numbers of pods and containers in the runtime, after the first
	// relist that succeeded and after each change: kubelet_running_pods and
	// kubelet_running_containers.
	Counted(Counts)
	// Connected reports the beginning and the end of an event stream: nil if one is
	// established, otherwise the error with which it has ended or could not be opened. If
	// the runtime does not announce its stream, it is established with the first event.
	// The metrics are
	// kubelet_evented_pleg_connection_success_count and
	// kubelet_evented_pleg_connection_error_count.
	Connected(err error)
	// Hinted reports an event of the stream with its age on arrival; 0 is unknown:
	// kubelet_evented_pleg_connection_latency_seconds.
	Hinted(age time.Duration)
	// Missed reports the number of pods that a relist found changed without a hint of the
	// event stream. Kubelet has no such metric.
	Missed(pods int)
}

// NopMetrics is a [Metrics] that does nothing. Implementations embed it, so that methods
// added later do not break them.
type NopMetrics struct{}

var _ Metrics = NopMetrics{}

// Relisted implements [Metrics].
func (NopMetrics) Relisted(Relisted) {}

// Counted implements [Metrics].
func (NopMetrics) Counted(Counts) {}

// Connected implements [Metrics].
func (NopMetrics) Connected(error) {}

// Hinted implements [Metrics].
func (NopMetrics) Hinted(time.Duration) {}

// Missed implements [Metrics].
func (NopMetrics) Missed(int) {}

// Relisted describes one relist.
type Relisted struct {
	// Took is the duration of the list call. Err is its error.
	Took time.Duration
	Err  error
	// Began is when the list call began. Interval is the time since the list call before
	// it began, 0 for the first.
	Began    time.Time
	Interval time.Duration
	// Due is the time of the next relist, at the latest.
	Due time.Time
}

// Counts are the numbers of pods and containers in the latest views of the runtime.
type Counts struct {
	// Pods counts the pods with a ready sandbox.
	Pods int
	// Created, Running, Exited and Unknown count the containers in these states.
	Created, Running, Exited, Unknown int
}

// add adds n times the parts of the pod, which may be nil.
func (c *Counts) add(pod *runtime.Pod, n int) {
	if pod == nil {
		return
	}
	for i := range pod.Containers {
		switch pod.Containers[i].State {
		case runtime.ContainerCreated:
			c.Created += n
		case runtime.ContainerRunning:
			c.Running += n
		case runtime.ContainerExited:
			c.Exited += n
		default:
			c.Unknown += n
		}
	}
	if slices.ContainsFunc(pod.Sandboxes, func(s runtime.Sandbox) bool { return s.State == runtime.SandboxReady }) {
		c.Pods += n
	}
}
