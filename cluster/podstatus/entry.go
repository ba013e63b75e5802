package podstatus

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// entry is the state of a pod in the sink, from its first status to PodGone. Sink.mu guards the writes: calls for
// the pod do not overlap, but events of the watch come at any time.
type entry struct {
	uid types.UID
	// static is true for a static pod. Its API object is its mirror pod, which has another UID.
	static bool
	name   types.NamespacedName

	// pod and own are the latest that were delivered.
	pod *v1.Pod
	own *v1.PodStatus
	// answered is the API object as the last call returned it, until the watch has that state
	// or a newer one.
	answered *v1.Pod
	// accepted is the status of the API object after the last write, and sent the own status
	// that was written. They differ if the server has dropped fields, as an older server does. If another writer has
	// changed the object just before that write, accepted is what the write was to make of it.
	accepted, sent *v1.PodStatus
	// refusedAt is when the server has refused the own status as invalid for the first time; zero if it has not.
	refusedAt time.Time
	// holdUntil is the time until which statuses are held back; zero if none was since the last write.
	holdUntil time.Time
	// deleted is the UID of the API object that was deleted successfully. The watch may still have it.
	deleted types.UID
	// resends limits the writes of a status that another writer overwrites; nil before the first.
	resends *rate.Limiter
}

// String returns the pod for messages.
func (e *entry) String() string { return fmt.Sprintf("%s (%s)", e.name, e.uid) }

// known returns the newest state of the API object: watched, which may be nil, or the answer
// to the last call.
func (s *Sink) known(e *entry, watched *v1.Pod) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := e.answered; a != nil && (watched == nil || older(watched, a)) {
		return a
	}
	e.answered = nil
	return watched
}

// older reports whether a is an older state than b. It returns false if the resource versions
// are no numbers: then the watch decides.
func older(a, b *v1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

func (s *Sink) answered(e *entry, obj *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj.ManagedFields = nil
	e.answered = obj
}

// wrote records that the API object has the own status, as far as the server keeps it: accepted.
func (s *Sink) wrote(e *entry, accepted, own *v1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.sent, e.accepted, e.refusedAt, e.holdUntil = own, accepted, time.Time{}, time.Time{}
}

// isAccepted reports whether nothing that the agent writes has changed since the own status
// was written.
func (s *Sink) isAccepted(e *entry, obj *v1.Pod, own *v1.PodStatus) bool {
	s.mu.Lock()
	accepted, sent := e.accepted, e.sent
	s.mu.Unlock()
	return sent == own && accepted != nil && sameOwn(&obj.Status, accepted)
}

// postpone returns how long to wait with a status that another one will probably replace soon.
//
//   - The status of a pod whose containers are being created, see startPeriod. In a rush of pods these
//     are most of the writes, at the moment when the control plane has most to do.
//   - The status of a pod with a deletion timestamp whose containers have all ended, while its volumes
//     are taken down. So most pods end with one write less. The condition Ready becomes false
//     with the final status, up to holdPeriod later; load balancers also use the deletion timestamp.
//   - Any further status of a pod after the end of all its containers is written: its sandbox is gone,
//     for example.
func (s *Sink) postpone(e *entry, obj *v1.Pod, to *v1.PodStatus) time.Duration {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case starts(&obj.Status) && starts(to) && obj.DeletionTimestamp == nil:
		switch {
		case !e.holdUntil.IsZero():
		case len(obj.Status.ContainerStatuses) > 0: // one was written: the sandbox is ready now
			e.holdUntil = now.Add(maxStartPeriod)
		default:
			e.holdUntil = now.Add(min(max(startPeriod, s.lastStart.Add(startSpacing).Sub(now)), maxStartPeriod))
			s.lastStart = e.holdUntil
		}
	case podspec.IsPhaseTerminal(to.Phase) || !allEnded(to) || obj.DeletionTimestamp == nil && !allEnded(&obj.Status):
		return 0
	default:
		if latest := now.Add(holdPeriod); e.holdUntil.IsZero() || e.holdUntil.After(latest) {
			e.holdUntil = latest
		}
	}
	return max(0, e.holdUntil.Sub(now))
}

// starts reports whether the containers of a pod are being created, and nothing has failed: none has
// started, and all wait for the reasons that each pod has at first.
func starts(s *v1.PodStatus) bool {
	return (s.Phase == v1.PodPending || s.Phase == "") && s.Reason == "" &&
		!slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses),
			func(c v1.ContainerStatus) bool {
				w := c.State.Waiting
				return w == nil || c.LastTerminationState != (v1.ContainerState{}) || w.Message != "" ||
					w.Reason != "ContainerCreating" && w.Reason != "PodInitializing"
			})
}

// allEnded reports whether there are main containers and all of them have ended.
func allEnded(s *v1.PodStatus) bool {
	return len(s.ContainerStatuses) > 0 && !slices.ContainsFunc(s.ContainerStatuses,
		func(c v1.ContainerStatus) bool { return c.State.Terminated == nil })
}

// resend returns how long to wait before the own status is written again, because another
// writer has overwritten it; 0 if it was not written yet. The first repetitions are immediate.
func (s *Sink) resend(e *entry, own *v1.PodStatus) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.sent != own || e.accepted == nil {
		return 0
	}
	if e.resends == nil {
		e.resends = rate.NewLimiter(rate.Every(resendPeriod), resendBurst)
	}
	r := e.resends.Reserve()
	wait := r.Delay()
	if wait > 0 {
		r.Cancel()
	}
	return wait
}

// refused records that the server refuses the own status.
func (s *Sink) refused(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.refusedAt.IsZero() {
		e.refusedAt = time.Now()
	}
}
