package pleg

import (
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Relisted is the measurement of a relist, after its list was compared: kubelet_pleg_relist_duration_seconds,
// kubelet_pleg_relist_interval_seconds and kubelet_pleg_last_seen_seconds.
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

// Counts are the numbers of pods and containers in the latest views of the runtime. They are measured after the first
// relist that succeeded and after each change: kubelet_running_pods and kubelet_running_containers.
type Counts struct {
	// Pods counts the pods with a ready sandbox.
	Pods int
	// Created, Running, Exited and Unknown count the containers in these states.
	Created, Running, Exited, Unknown int
}

// Connected is the measurement of an event stream that was established, or has ended. A runtime that does not announce
// its stream has established it with the first event. The metrics are kubelet_evented_pleg_connection_success_count and
// kubelet_evented_pleg_connection_error_count.
type Connected struct {
	// Err is the error with which the stream has ended or could not be opened; nil if it is established.
	Err error
}

// Hinted is the measurement of an event of the stream: kubelet_evented_pleg_connection_latency_seconds.
type Hinted struct {
	// Age is that of the event on arrival; 0 is unknown.
	Age time.Duration
}

// Missed is the measurement of a relist that found pods changed without a hint of the event stream. Kubelet has no such
// metric.
type Missed struct{ Pods int }

// IsMeasurement implements [runtime.Measurement].
func (Relisted) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Counts) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Connected) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Hinted) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Missed) IsMeasurement() {}

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
