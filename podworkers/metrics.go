package podworkers

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Metrics receives the measurements of [Pool]. Its methods are called one at a time, and nothing
// waits for them. Implementations embed [NopMetrics], so that methods added
// later do not break them. metrics/prometheus has one with the names of kubelet.
type Metrics interface {
	// Called reports a call of the [Syncer] that has returned.
	//
	// kubelet_pod_worker_duration_seconds is the time from Received to Ended by
	// Operation. kubelet_pod_worker_start_duration_seconds is the time from Received
	// to Began of calls of type Create. kubelet has no names for the rest.
	Called(Call)
	// Counted reports how many pods there are, at each SyncKnownPods; a kind without
	// pods is missing. It is kubelet_working_pods.
	Counted(pods map[PodKind]int)
}

// NopMetrics discards all measurements.
type NopMetrics struct{}

var _ Metrics = NopMetrics{}

// Called implements [Metrics].
func (NopMetrics) Called(Call) {}

// Counted implements [Metrics].
func (NopMetrics) Counted(map[PodKind]int) {}

// Call describes a call of a [Syncer] that has returned.
type Call struct {
	Pod runtime.PodRef
	// Phase is PhaseSync for SyncPod, PhaseTerminating for SyncTerminatingPod and
	// SyncTerminatingOrphan, PhaseTerminated for SyncTerminatedPod.
	Phase Phase
	// Type of a SyncPod, else 0.
	Type UpdateType
	// Received is the oldest [Update.Received] of the updates that the call answers;
	// zero if none had it.
	Received time.Time
	// Began is when the read of the pod's status before the call began, Ended when the
	// call returned.
	Began, Ended time.Time
	// Err is the error of the call, or of the read of the status before it. It wraps a
	// [*runtime.PanicError] if the call panicked. A call that was cancelled has an error,
	// too.
	Err error
	// Failure is the error by which the call has failed its pod for good; nil if it has
	// not.
	Failure *runtime.TerminalError
	// Backoff is the delay until the call is repeated because it failed; 0 if it is not.
	Backoff time.Duration
}

// Operation returns the value of kubelet's label operation_type: "create", "update",
// "sync" or "kill".
func (c Call) Operation() string {
	switch {
	case c.Phase != PhaseSync:
		return Kill.String()
	case c.Type == Change:
		return "update"
	default:
		return c.Type.String()
	}
}

// PodKind is what [Metrics] counts pods by; the fields are those of [State].
type PodKind struct {
	Phase                     Phase
	Orphan, HasConfig, Static bool
}

// count counts the pods of each kind.
func count(states map[types.UID]State) map[PodKind]int {
	counts := map[PodKind]int{}
	for _, s := range states {
		counts[PodKind{Phase: s.Phase, Orphan: s.Orphan, HasConfig: s.HasConfig, Static: s.Static}]++
	}
	return counts
}
