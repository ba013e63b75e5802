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
	// Relisted is told of each relist, when its list call has returned.
	Relisted(Relisted)
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

// Relisted is what is known of one relist.
type Relisted struct {
	// Took is the duration of the list call. Err is what it failed with.
	Took time.Duration
	Err  error
	// Began is when the list call began. Interval is the time since the relist before
	// began, 0 for the first.
	Began    time.Time
	Interval time.Duration
	// Sandboxes counts pods with a ready sandbox, Containers the containers by state.
	// They are zero where the list call failed.
	Sandboxes  int
	Containers map[runtime.ContainerState]int
}

// count counts what the pods have.
func (r *Relisted) count(pods []*runtime.Pod) {
	if r.Err != nil {
		return
	}
	r.Containers = map[runtime.ContainerState]int{}
	for _, pod := range pods {
		for i := range pod.Containers {
			r.Containers[pod.Containers[i].State]++
		}
		if slices.ContainsFunc(pod.Sandboxes, func(s runtime.Sandbox) bool { return s.State == runtime.SandboxReady }) {
			r.Sandboxes++
		}
	}
}
