package podworkers

import (
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Phase is the phase of an incarnation. It never goes back.
type Phase uint8

// The phases.
const (
	// PhaseSync: the pod is to run, or its last SyncPod has not returned yet.
	PhaseSync Phase = iota + 1
	// PhaseTerminating: no container of the pod is started any more; some may run.
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

// State is the state of a pod in the workers at one moment. Its fields are in an
// order that keeps it small: a map allocates each value of more than 128 bytes by itself.
type State struct {
	// Phase is 0 if the pod is not known; then all fields but Synced and Drained are zero.
	Phase Phase
	// Synced means that SyncKnownPods has been called. Before that, a pod that is not
	// known may still be delivered; after it, such a pod is not desired.
	Synced bool
	// Drained means that Drain was called: the workers start no pod any more.
	Drained bool
	// Finished means that SyncTerminatedPod has succeeded. Only the record is left, until
	// SyncKnownPods forgets it.
	Finished bool
	// Deleted means that the pod was deleted in the API, or is not desired any more.
	Deleted bool
	// Evicted means that a kill had Evict set.
	Evicted bool
	// RestartRequested means that another incarnation of the UID starts as soon as this
	// one has finished.
	RestartRequested bool
	// Orphan is true in two cases: the workers were given the pod by [Update].Orphan, without a
	// spec; or the pod was not desired at the last call of SyncKnownPods.
	Orphan bool
	// HasConfig means that the workers have the spec of the pod.
	HasConfig bool
	// Static means that the pod comes from another source than an API server.
	Static bool
	// Waiting means that the pod must not start before another pod of its full name has
	// ended.
	Waiting bool
	// FullName is "<name>_<namespace>".
	FullName string
	// Failure is the error by which SyncPod has failed the pod for good; nil if it has
	// not. It is not set if a kill with a Status came before. It must not be changed.
	Failure *runtime.TerminalError
	// GracePeriod of the termination in seconds. It is 0 if no end was requested, and
	// for an orphan if no kill had one.
	GracePeriod int64
	// StartedAt is the time of the first SyncPod of this incarnation, TerminatingAt the
	// time when its end was first requested, TerminatedAt the time since when nothing of
	// it runs. They are zero before that.
	StartedAt, TerminatingAt, TerminatedAt time.Time
}

// Known reports whether there is a worker or a record for the UID.
func (s State) Known() bool { return s.Phase != 0 }

// TerminationRequested reports whether the pod is to end or has ended. If Phase is
// still PhaseSync, a SyncPod is being cancelled. It is false for pods that are not
// known.
func (s State) TerminationRequested() bool { return !s.TerminatingAt.IsZero() }

// Terminated reports whether nothing of the pod runs any more. It is false for pods
// that are not known.
func (s State) Terminated() bool { return s.Phase == PhaseTerminated }

// CouldHaveRunningContainers reports whether a container of the pod may run. Before
// the first SyncKnownPods it is true for all pods that are not known.
func (s State) CouldHaveRunningContainers() bool {
	if s.Known() {
		return s.Phase != PhaseTerminated
	}
	return !s.Synced
}
