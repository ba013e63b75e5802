package podworkers

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// machines has the machines of all pods, and the order of static pods of the same full
// name. It makes no calls and is not safe for concurrent use.
type machines struct {
	policy policy
	pods   map[types.UID]machine // known ones only
	names  fullNames
	synced bool // see State.Synced
	// drained means that no incarnation is started any more: none begins with an update, and none has its first
	// SyncPod.
	drained bool
	// forgotten is the number of pods that were forgotten so far.
	forgotten int
}

func newMachines(p policy) *machines {
	return &machines{policy: p, pods: map[types.UID]machine{}, names: fullNames{}}
}

// begins reports whether the update begins an incarnation.
func (s *machines) begins(uid types.UID, u Update) bool {
	return !s.pods[uid].known() && !u.OnlyKnown && !s.refuses(uid, u)
}

// refuses reports whether an update has no effect because the workers are drained.
func (s *machines) refuses(uid types.UID, u Update) bool {
	if !s.drained || u.Type == Kill || u.Pod.DeletionTimestamp != nil || podspec.IsPhaseTerminal(u.Pod.Status.Phase) {
		return false
	}
	return u.Type == Create || !s.pods[uid].known()
}

// apply applies an event to the machine of the UID. If this releases a full name, the next
// pod of the name may start. It returns the effects on the pod of the UID, and the UIDs
// whose calls may have become due: this one and those that may start now.
func (s *machines) apply(now time.Time, uid types.UID, ev any) (effects, []types.UID) {
	if u, ok := ev.(updated); ok && s.refuses(uid, u.Update) {
		return effects{}, nil
	}
	old := s.pods[uid]
	m, fx := old.on(s.policy, now, ev)
	s.names.move(old, m)
	if m.known() {
		s.pods[uid] = m
	} else if old.known() {
		delete(s.pods, uid)
		s.forgotten++
	}
	touched := []types.UID{uid}
	// This starts the pod itself if it has just begun to wait for a name that is free. The
	// names differ if the next incarnation has begun with this event.
	for _, name := range [...]string{old.fullName, m.fullName} {
		if next, ok := s.names.first(name); ok {
			_, more := s.apply(now, next, allowStart{})
			touched = append(touched, more...)
		}
	}
	return fx, touched
}

// due returns when the pod's next call may be taken, see [machine.due].
func (s *machines) due(uid types.UID) (time.Time, bool) {
	m := s.pods[uid]
	if s.drained && m.phase == PhaseSync && m.startedAt.IsZero() {
		return time.Time{}, false
	}
	return m.due()
}

// take begins the pod's call that is due, if any.
func (s *machines) take(now time.Time, uid types.UID) (call, bool) {
	if _, ok := s.due(uid); !ok {
		return call{}, false
	}
	m, c, ok := s.pods[uid].take(now)
	if ok {
		s.pods[uid] = m
	}
	return c, ok
}

// state returns the state of the pod.
func (s *machines) state(uid types.UID) State {
	state := s.pods[uid].snapshot()
	state.Synced, state.Drained = s.synced, s.drained
	return state
}

// predecessor is [Workers].Predecessor.
func (s *machines) predecessor(uid types.UID) (runtime.PodRef, bool) {
	m := s.pods[uid]
	if m.nameUse() != nameWanted {
		return runtime.PodRef{}, false
	}
	at := s.names[m.ref.FullName()]
	for _, list := range [][]types.UID{at.holders, at.waiting} {
		if len(list) > 0 && list[0] != uid {
			return s.pods[list[0]].ref, true
		}
	}
	return runtime.PodRef{}, false
}

// terminatingByFullName is [Workers].TerminatingByFullName.
func (s *machines) terminatingByFullName(fullName string) bool {
	at := s.names[fullName]
	if at == nil {
		return false
	}
	for _, uid := range at.holders {
		if m := s.pods[uid]; m.static && m.end.requested() && m.phase < PhaseTerminated {
			return true
		}
	}
	return false
}
