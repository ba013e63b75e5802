package podworkers

import (
	"fmt"
	"time"
)

// Phase is where a worker stands with its pod. It only grows.
type Phase int

// The phases of a worker.
const (
	// PhaseSync: the pod is to run, or SyncPod has not returned yet.
	PhaseSync Phase = iota + 1
	// PhaseTerminating: no container of the pod is started any more, some may run.
	PhaseTerminating
	// PhaseTerminated: nothing of the pod runs any more.
	PhaseTerminated
)

// String returns the phase in one lower-case word.
func (p Phase) String() string {
	switch p {
	case 0:
		return "none"
	case PhaseSync:
		return "sync"
	case PhaseTerminating:
		return "terminating"
	case PhaseTerminated:
		return "terminated"
	default:
		return fmt.Sprintf("invalid(%d)", int(p))
	}
}

// State is what the workers know of a pod at one moment. The methods answer the
// questions that other parts of an agent ask before they set something up or
// take it down.
type State struct {
	// Phase is 0 if the pod is not known; all fields but Synced are zero then.
	Phase Phase
	// Synced says that SyncKnownPods has been called once: from then on a pod that
	// is not known is certain not to be one that was not delivered yet.
	Synced bool
	// FullName is "<name>_<namespace>".
	FullName string
	// Finished says that SyncTerminatedPod has succeeded, and that only the record
	// is left, until SyncKnownPods drops it.
	Finished bool
	// Deleted says that the pod was deleted from the API, or is not desired any more.
	Deleted bool
	Evicted bool
	// RestartRequested says that another incarnation of this UID starts as soon as
	// this one has finished.
	RestartRequested bool
	// Orphan says that the pod is known to the runtime only, or was not among the
	// desired ones when SyncKnownPods was last called.
	Orphan bool
	// HasConfig says that the pod's spec is known.
	HasConfig bool
	// Static says that the pod comes from another source than an API server.
	Static bool
	// Waiting says that the pod may not start before another of its full name has
	// ended.
	Waiting bool
	// GracePeriod of the termination in seconds; 0 if none was asked for or, for an
	// orphan, none was given.
	GracePeriod int64
	// StartedAt is when SyncPod was first called in this incarnation, TerminatingAt
	// when the pod was first asked to end, TerminatedAt when nothing ran any more;
	// zero before that.
	StartedAt, TerminatingAt, TerminatedAt time.Time
}

// Known reports whether there is a worker or a record for the UID.
func (s State) Known() bool { return s.Phase != 0 }

// TerminationRequested reports whether the pod is to end or has ended. While
// Phase still is PhaseSync, a call of SyncPod is being cancelled. It is false for
// unknown pods.
func (s State) TerminationRequested() bool { return !s.TerminatingAt.IsZero() }

// Terminated reports whether the pod is known to run nothing any more. It is
// false for unknown pods.
func (s State) Terminated() bool { return s.Phase == PhaseTerminated }

// CouldHaveRunningContainers reports whether something of the pod may be running:
// true before the first SyncKnownPods for all pods that are not known.
func (s State) CouldHaveRunningContainers() bool {
	if s.Known() {
		return s.Phase != PhaseTerminated
	}
	return !s.Synced
}
