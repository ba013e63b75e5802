package podworkers

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// book is all machines, and the order between those of the same full name. It
// thinks and does nothing; it is not safe for concurrent use.
type book struct {
	policy policy
	pods   map[types.UID]machine // known ones only
	names  names
	synced bool
}

func newBook(p policy) *book {
	return &book{policy: p, pods: map[types.UID]machine{}, names: names{}}
}

// apply hands an event to the machine of the UID, and gives a name that became
// free to the next in line. It returns the effects on the pod of the UID, and
// whose calls may have become due: that pod's and those that may start now.
func (b *book) apply(now time.Time, uid types.UID, ev any) (effects, []types.UID) {
	old := b.pods[uid]
	m, fx := old.on(b.policy, now, ev)
	b.names.move(old, m)
	if m.known() {
		b.pods[uid] = m
	} else {
		delete(b.pods, uid)
	}
	touched := []types.UID{uid}
	for _, freed := range [...]machine{old, m} {
		if next, ok := b.names.first(freed.ref.FullName()); ok {
			_, more := b.apply(now, next, granted{})
			touched = append(touched, more...)
		}
	}
	return fx, touched
}

// take begins the call of that pod which is due, if any.
func (b *book) take(now time.Time, uid types.UID) (call, bool) {
	m, c, ok := b.pods[uid].take(now)
	if ok {
		b.pods[uid] = m
	}
	return c, ok
}

// state is what others may know of the pod.
func (b *book) state(uid types.UID) State {
	s := b.pods[uid].snapshot()
	s.Synced = b.synced
	return s
}

// terminatingByFullName reports whether a static pod of the name is on its way out.
func (b *book) terminatingByFullName(fullName string) bool {
	at := b.names[fullName]
	if at == nil {
		return false
	}
	for _, uid := range at.holders {
		if m := b.pods[uid]; m.static && m.requested() && m.phase < PhaseTerminated {
			return true
		}
	}
	return false
}
