package status

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// entry is the state of one pod UID. It is guarded by Store.mu. At least one of live
// and gone is set.
type entry struct {
	ref runtime.PodRef
	// live is the pod that has a status; nil after Forget.
	live *incarnation
	// gone is an earlier pod of the UID for which calls of the sink are due. They come
	// before those for live.
	gone *incarnation
	call
}

// due returns the pod that the next call of the sink is for, nil if none is due.
func (r *entry) due() *incarnation {
	switch {
	case r.gone != nil:
		return r.gone
	case r.live != nil && r.live.undelivered():
		return r.live
	}
	return nil
}

// incarnation is one pod of a UID. Another one of the same UID can follow, as a
// static pod whose manifest is removed and comes back.
type incarnation struct {
	// since is the time of the first status.
	since time.Time
	// pod and status are the latest. They are nil if only the end of the pod was
	// reported. What they point to is replaced, never changed.
	pod    *v1.Pod
	status *v1.PodStatus
	// out is the status to deliver: status, or while its final phase is held back, the
	// part that may be delivered. version is its number, delivered the version that the
	// sink has accepted or that was given up.
	out                *v1.PodStatus
	version, delivered uint64
	// changed is the time of the first change since the last delivery began, zero if
	// there is none.
	changed time.Time
	// finished is set by Terminate.
	finished bool
	// starting means that the pod is one of an API server that had no status when its first one was made here, and that
	// no status with all containers running was delivered yet.
	starting bool
}

// mayHoldBack reports whether the final phase of the pod has to be held back while its containers
// may run. A final phase that the receiver has already is not held back.
func (i *incarnation) mayHoldBack() bool {
	return podspec.IsPhaseTerminal(i.status.Phase) && !i.finished &&
		!podspec.IsPhaseTerminal(i.pod.Status.Phase) && (i.out == nil || !podspec.IsPhaseTerminal(i.out.Phase))
}

func (i *incarnation) undelivered() bool { return i.delivered < i.version }

// setOut sets the status to deliver. It returns false and does nothing if that is no
// change.
func (i *incarnation) setOut(out v1.PodStatus, now time.Time) bool {
	if i.out != nil && equality.Semantic.DeepEqual(i.out, &out) {
		return false
	}
	i.out = &out
	i.version++
	if i.changed.IsZero() {
		i.changed = now
	}
	return true
}
