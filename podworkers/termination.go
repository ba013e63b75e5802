package podworkers

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// termination is the state of the end of an incarnation.
type termination struct {
	// requestedAt is when the end was first requested; zero while the pod is to run.
	requestedAt time.Time
	deleted     bool // in the API, or by not being desired
	evicted     bool
	inAPI       bool // the pod was in a final phase when it came
	// failure is the error by which a SyncPod has failed the pod for good, or nil.
	failure *runtime.TerminalError
	// grace is the grace period in seconds. It is 0 until the end is requested, for an
	// orphan until a kill has one; after that it only shrinks.
	grace int64
	// status is the override of the failure, or of the latest kill that had one.
	status func(*v1.PodStatus)
	// outdated means that a SyncTerminatingPod is under way which did not get the latest
	// eviction or status: another call is needed even if this one succeeds.
	outdated bool
	done     []func() // to be called when the pod is terminated
}

func (t termination) requested() bool { return !t.requestedAt.IsZero() }

// kill merges the options of a kill, except for the grace period; see shorten. underWay
// means that a SyncTerminatingPod is under way.
func (t termination) kill(k *KillOptions, underWay bool) termination {
	status := k.Status
	if t.failure != nil {
		status = nil // the reason of the failure stays
	}
	if k.Evict && !t.evicted || status != nil {
		t.outdated = underWay
	}
	t.evicted = t.evicted || k.Evict
	if status != nil {
		t.status = status
	}
	t.done = appended(t.done, k.Done)
	return t
}

// requestEnd begins the termination of the pod, unless it has begun.
func (m machine) requestEnd(now time.Time) (machine, effects) {
	if m.end.requested() {
		return m, effects{}
	}
	m.end.requestedAt = now
	m.schedule = m.schedule.reset()
	if m.call.kind == callSync { // the phase changes when it has returned
		m.call.cancelled = true
		return m, effects{cancel: ErrTerminating}
	}
	m.phase = PhaseTerminating
	return m, effects{}
}

// endByItself begins the termination of a pod that has ended or failed by itself.
func (m machine) endByItself(now time.Time) machine {
	m, _ = m.requestEnd(now)
	m.end.grace = effectiveGracePeriod(0, m.pod, nil)
	return m
}

// fail records that SyncPod has failed the pod for good; nil means that it has not.
// The status of a kill that came before stays.
func (m machine) fail(failure *runtime.TerminalError) (machine, effects) {
	if failure == nil || m.end.status != nil {
		return m, effects{}
	}
	m.end.failure = failure
	m.end.status = func(s *v1.PodStatus) {
		s.Phase, s.Reason, s.Message = v1.PodFailed, failure.Reason, failure.Message
	}
	return m, effects{failure: failure}
}

// shorten applies the grace period of the latest spec and of a kill. A terminating
// call under way is cancelled if its containers would otherwise run longer.
func (m machine) shorten(now time.Time, requested *int64) (machine, effects) {
	before := m.end.grace
	if m.orphan != nil {
		m.end.grace = shorter(before, requested)
	} else {
		m.end.grace = effectiveGracePeriod(before, m.pod, requested)
	}
	if m.end.grace == before {
		return m, effects{}
	}
	m.schedule.ready = true
	if !m.call.terminating() || m.call.cancelled {
		return m, effects{}
	}
	if !m.call.deadline.IsZero() && !now.Add(podspec.Seconds(m.end.grace)).Before(m.call.deadline) {
		return m, effects{}
	}
	m.call.cancelled = true
	return m, effects{cancel: ErrShortened}
}

// effectiveGracePeriod returns the grace period in seconds with which a pod is terminated
// (kubelet: calculateEffectiveGracePeriod). It is the shortest of the current one (0 for none),
// the one of the deletion in the API, and the requested one; without any of these, the one of the
// spec. It is at least 1, as in kubelet, so that every process gets its stop signal and time to
// handle it, also after a deletion with a grace period of 0.
func effectiveGracePeriod(current int64, pod *v1.Pod, requested *int64) int64 {
	grace := shorter(shorter(current, pod.DeletionGracePeriodSeconds), requested)
	if grace == 0 {
		grace = max(1, podspec.GracePeriod(pod))
	}
	return grace
}

// shorter returns the shorter of two grace periods. A current one of 0 and a requested one
// of nil do not count. A requested one counts as at least 1.
func shorter(current int64, requested *int64) int64 {
	switch {
	case requested == nil:
		return current
	case current == 0:
		return max(1, *requested)
	default:
		return min(current, max(1, *requested))
	}
}

// appended returns a list with f appended, or the same list if f is nil. The list is never
// written to, because several machine values may share it.
func appended(list []func(), f func()) []func() {
	if f == nil {
		return list
	}
	return append(list[:len(list):len(list)], f)
}
