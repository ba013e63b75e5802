package podstatus

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// entryKey identifies an entry. Pods of different kinds may have the same UID: a manifest may give a
// static pod that of a pod of the API server, and the API server may give a mirror pod that of a
// static pod.
type entryKey struct {
	uid  types.UID
	kind kind
}

// kind is the kind of pod that an entry is for.
type kind int

const (
	// ofPod is a pod of the API server.
	ofPod kind = iota
	// ofStatic is a static pod. Its API object is its mirror pod, which has another UID.
	ofStatic
	// ofMirror is a mirror pod without a known static pod.
	ofMirror
)

// keyOf returns the key of the entry that an API object has without a static pod.
func keyOf(obj *v1.Pod) entryKey {
	if podspec.IsMirror(obj) {
		return entryKey{obj.UID, ofMirror}
	}
	return entryKey{obj.UID, ofPod}
}

// entry is the state of a pod in the sink. It is made for the first status, or when the API object
// has to be deleted. It is removed by PodGone or, if there was no status, with the object.
type entry struct {
	entryKey
	name types.NamespacedName
	// turn holds a token while no call for the pod is under way.
	turn chan struct{}

	// These are guarded by Sink.mu.

	// pod and own are the latest that were delivered; nil if nothing was.
	pod *v1.Pod
	own *v1.PodStatus
	// answered is the API object as the last call returned it, until the watch has that state
	// or a newer one.
	answered *v1.Pod
	// accepted is the status of the API object after the last write, and sent the own status
	// that was written. They differ if the server has dropped fields, as an older server does.
	accepted, sent *v1.PodStatus
	// refused is the own status that the server has refused as invalid, or of a static pod that cannot
	// have a mirror pod, see Sink.bar. refusals counts the refusals. The first one was at refusedAt, and
	// the status is sent again at sendAgain.
	refused              *v1.PodStatus
	refusals             int
	refusedAt, sendAgain time.Time
	// held is the own status that is held back, since heldSince.
	held      *v1.PodStatus
	heldSince time.Time
	// startAt is when the status of a pod that starts is written; zero if none is held back.
	startAt time.Time
	// deleted is the UID of the API object that was deleted successfully.
	deleted types.UID
	// forgotten means that the entry has been removed: no further calls are made for it.
	forgotten bool
	// queued means that Run has an attempt that waits for its turn. It sees whatever happens until then.
	queued bool
	// unsent means that the last attempt has failed, or waits for the watch or the node.
	unsent bool
	// failures and resends are the numbers of consecutive ones, for the back-off. tried is the own
	// status of the last failure, and resent the time of the last resend.
	failures, resends int
	tried             *v1.PodStatus
	resent            time.Time
	// hurried is when the last write that went first has succeeded.
	hurried time.Time
}

// take waits until no call for the pod is under way. The caller calls done after its own.
func (e *entry) take(ctx context.Context) (done func(), err error) {
	select {
	case <-e.turn:
		return func() { e.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("pod %s: waiting for another call for the pod: %w", e, context.Cause(ctx))
	}
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

func (s *Sink) hurried(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.hurried = time.Now()
}

// wrote records that the API object has the own status, as far as the server keeps it.
func (s *Sink) wrote(e *entry, obj *v1.Pod, own *v1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.sent, e.accepted, e.refused, e.startAt = own, &obj.Status, nil, time.Time{}
}

// isAccepted reports whether nothing that the agent writes has changed since the own status
// was written.
func (s *Sink) isAccepted(e *entry, obj *v1.Pod, own *v1.PodStatus) bool {
	s.mu.Lock()
	accepted, sent := e.accepted, e.sent
	s.mu.Unlock()
	return sent == own && accepted != nil && sameOwn(&obj.Status, accepted)
}

// hold returns how long to wait with a status that another one will probably replace soon.
//
//   - The status of a pod whose containers are being created, see startPeriod. In a rush of pods these
//     are most of the writes, at the moment when the control plane has most to do.
//   - The status of a pod with a deletion timestamp whose containers have all ended, while its volumes
//     are taken down. So most pods end with one write less. The condition Ready becomes false
//     with the final status, up to holdPeriod later; load balancers also use the deletion timestamp.
//   - Any further status of a pod after the end of all its containers is written: its sandbox is gone,
//     for example.
func (s *Sink) hold(e *entry, obj *v1.Pod, own, to *v1.PodStatus) time.Duration {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if starts(&obj.Status) && starts(to) && obj.DeletionTimestamp == nil {
		switch {
		case !e.startAt.IsZero():
		case len(obj.Status.ContainerStatuses) > 0: // one was written: the sandbox is ready now
			e.startAt = now.Add(maxStartPeriod)
		default:
			e.startAt = now.Add(min(max(startPeriod, s.lastStart.Add(startSpacing).Sub(now)), maxStartPeriod))
			s.lastStart = e.startAt
		}
		return max(0, e.startAt.Sub(now))
	}
	if podspec.IsPhaseTerminal(to.Phase) || !allEnded(to) || obj.DeletionTimestamp == nil && !allEnded(&obj.Status) {
		return 0
	}
	if e.held != own {
		e.held, e.heldSince = own, now
	}
	return max(0, e.heldSince.Add(holdPeriod).Sub(now))
}

// starts reports whether the containers of a pod are being created, and nothing has failed: none has
// started, and all wait for the reasons that each pod has at first.
func starts(s *v1.PodStatus) bool {
	return (s.Phase == v1.PodPending || s.Phase == "") && s.Reason == "" &&
		!slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses), func(c v1.ContainerStatus) bool {
			w := c.State.Waiting
			return w == nil || c.LastTerminationState != (v1.ContainerState{}) || w.Message != "" || w.Reason != "ContainerCreating" && w.Reason != "PodInitializing"
		})
}

// allEnded reports whether there are main containers and all of them have ended.
func allEnded(s *v1.PodStatus) bool {
	return len(s.ContainerStatuses) > 0 && !slices.ContainsFunc(s.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.State.Terminated == nil })
}

// resend returns how long to wait before the own status is written again, because another
// writer has overwritten it; 0 if it was not written yet. The first repetition is immediate.
func (s *Sink) resend(e *entry, own *v1.PodStatus) time.Duration {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.sent != own || e.accepted == nil {
		e.resends = 0
		return 0
	}
	if now.Sub(e.resent) > 6*maxResendPeriod {
		e.resends = 0
	}
	if wait := e.resent.Add(flow.Backoff{Min: s.opts.RetryMin, Max: maxResendPeriod}.After(e.resends)).Sub(now); wait > 0 {
		return wait
	}
	e.resends++
	e.resent = now
	return 0
}

// refuse records that the server refuses the own status, and returns the time after which it is sent again.
func (s *Sink) refuse(e *entry, own *v1.PodStatus, err error) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if e.refused != own {
		e.refusals, e.refusedAt = 0, now
	}
	e.refusals++
	s.failed(e, now)
	after := flow.Backoff{Min: minInvalidPeriod, Max: maxInvalidPeriod}.After(e.refusals)
	if e.refusals == 1 {
		s.log.Error(err, "The API server refuses a pod's status as invalid; it is sent again when it changes, and after a while", "pod", e.String(), "fields", fields(err), "after", after)
	} else {
		s.log.V(2).Info("The API server refuses a pod's status again", "pod", e.String(), "refusals", e.refusals, "err", err.Error(), "after", after)
	}
	e.refused, e.sendAgain = own, now.Add(after)
	s.plan(e, e.sendAgain)
	s.poke()
	return after
}

// unrefuse has all refused statuses sent again if the own status was one of them: what the
// server accepts has changed.
func (s *Sink) unrefuse(e *entry, own *v1.PodStatus) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.refused != own {
		return
	}
	for _, other := range s.entries {
		if other.refused != nil && other != e {
			other.sendAgain = now
			s.plan(other, now)
		}
	}
	s.poke()
}

// isRefused returns the time after which Run sends the own status again that was refused; 0 if it was not
// refused, or is sent again now.
func (s *Sink) isRefused(e *entry, own *v1.PodStatus) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := time.Until(e.sendAgain)
	if e.refused != own || wait <= 0 {
		return 0
	}
	s.plan(e, e.sendAgain)
	s.poke()
	return wait
}

// collides reports whether a static pod has the name or the UID of the pod of the API server. Then the pod does
// not reach the agent, and its end is no event.
func (s *Sink) collides(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.static[e.name] != "" || s.entries[entryKey{e.uid, ofStatic}] != nil
}
