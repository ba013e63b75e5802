package podworkers

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Call is the measurement of a call of a [Syncer] that has returned. kubelet_pod_worker_duration_seconds is the time
// from Received to Ended by Operation, and kubelet_pod_worker_start_duration_seconds is the time from Received to Began
// of calls of type Create. kubelet has no names for the rest.
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

// PodKind is what [Counts] counts pods by; the fields are those of [State].
type PodKind struct {
	Phase                     Phase
	Orphan, HasConfig, Static bool
}

// Counts is the measurement of the numbers of pods, at each SyncKnownPods: kubelet_working_pods. A kind without pods is
// missing.
type Counts map[PodKind]int

// IsMeasurement implements [runtime.Measurement].
func (Call) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Counts) IsMeasurement() {}

// count counts the pods of each kind.
func count(states map[types.UID]State) Counts {
	counts := Counts{}
	for _, s := range states {
		counts[PodKind{Phase: s.Phase, Orphan: s.Orphan, HasConfig: s.HasConfig, Static: s.Static}]++
	}
	return counts
}
