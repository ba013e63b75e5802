package podworkers

import (
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// begin returns the machine of a new incarnation.
func begin(u Update, mark runtime.Mark) machine {
	ref := u.ref()
	m := machine{ref: ref, fullName: ref.FullName(), phase: PhaseSync, pod: u.Pod, mark: mark, nextType: Create}
	if u.Pod == nil {
		m.orphan = u.Orphan
		return m
	}
	m.static = podspec.IsStatic(u.Pod)
	m.startAllowed = !m.static
	m.end.inAPI = podspec.IsPhaseTerminal(u.Pod.Status.Phase)
	return m
}

// beginNext begins the next incarnation, if there is one.
func (m machine) beginNext(now time.Time) (machine, effects) {
	if m.next == nil {
		return machine{}, effects{}
	}
	return begin(*m.next, m.mark).apply(now, *m.next)
}

// postpone keeps an update for a UID whose orphan is ending: the pod begins after the
// orphan has ended. The grace period and the Done of a kill apply to the orphan at once.
func (m machine) postpone(now time.Time, u Update) (machine, effects) {
	if u.Type != Kill {
		m.next = merged(m.next, u)
		return m, effects{}
	}
	k := *u.kill()
	m.end.done = appended(m.end.done, k.Done)
	k.Done = nil
	if m.next != nil && m.next.Type == Kill {
		old := m.next.kill()
		k.Evict = k.Evict || old.Evict
		if grace := shorter(shorter(0, old.GracePeriod), k.GracePeriod); grace > 0 {
			k.GracePeriod = &grace
		}
		if k.Status == nil {
			k.Status = old.Status
		}
	}
	next := u
	next.Kill = &k
	m.next = &next
	return m.shorten(now, u.kill().GracePeriod)
}

// merged returns the first update of the next incarnation after an update that is not
// a kill: with the latest pod, and still a kill unless the update is a Create.
func merged(next *Update, u Update) *Update {
	if next != nil && u.Type != Create {
		m := *next
		m.Pod = u.Pod
		return &m
	}
	return &u
}
