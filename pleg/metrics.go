package pleg

import (
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Metrics is told what a generator does. Its methods are called from goroutines
// of the generator, must not block, and are safe for concurrent use.
// metrics/prometheus has one under kubelet's names.
type Metrics interface {
	// Relisted is told of each relist, when what its list call said has been taken in.
	Relisted(Relisted)
	// Counted is told what there is, after the first relist that succeeded and whenever
	// it has changed since.
	Counted(Counts)
	// Connected is told when an event stream is known to stand (nil), and when one has
	// broken or could not be opened (why). Where the runtime does not announce its
	// stream, it is known to stand when it has delivered the first event.
	Connected(err error)
	// Hinted is told of each event that a stream delivered, with its age on arrival;
	// 0 is unknown.
	Hinted(age time.Duration)
	// Missed is told how many pods a relist found changed of which a healthy event
	// stream had said nothing.
	Missed(pods int)
}

// NopMetrics is a [Metrics] that does nothing. Embed it in an implementation, so that a
// later version of the interface with more methods does not break it.
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

// Relisted is what is known of one relist.
type Relisted struct {
	// Took is the duration of the list call. Err is what it failed with.
	Took time.Duration
	Err  error
	// Began is when the list call began. Interval is the time since the relist before
	// began, 0 for the first.
	Began    time.Time
	Interval time.Duration
	// Due is when the next relist is due at the latest: until then the generator needs
	// none to know what is there.
	Due time.Time
}

// Counts are how many there are in the runtime, by what is known of it.
type Counts struct {
	// Pods counts those with a ready sandbox.
	Pods int
	// Created, Running, Exited and Unknown count the containers in these states.
	Created, Running, Exited, Unknown int
}

// add adds n times what the pod has; it may be nil.
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
