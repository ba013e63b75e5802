package podconfig

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// union decides which of the offered pods count. Every UID and every full name is
// held by one slot at most: who holds them keeps them for as long as it offers
// them; free ones go to the first source that wants them, and within a source to
// the pod that came first.
//
// Offers and withdrawals are gathered until settle; in between, nothing that became
// free is given away.
type union struct {
	uids  map[types.UID]*slot
	names map[fullName]*slot
	// waiting are the slots that hold nothing: new offers and those that lost out.
	waiting []*slot
	// freedNames and freedUIDs are who gave up what since the last settle: the same
	// pod may be back, or its source have another one for its place, as when a pod
	// gets a new UID.
	freedNames map[fullName]former
	freedUIDs  map[types.UID]*origin
	// ledger is told of each pod that comes to count, changes or ceases to count.
	ledger *ledger
}

// former is the pod that held a full name.
type former struct {
	origin *origin
	uid    types.UID
}

func newUnion(l *ledger) *union {
	return &union{
		uids: map[types.UID]*slot{}, names: map[fullName]*slot{},
		freedNames: map[fullName]former{}, freedUIDs: map[types.UID]*origin{},
		ledger: l,
	}
}

// want returns what counts of a UID; nil if nothing does.
func (u *union) want(uid types.UID) *entry {
	if s := u.uids[uid]; s != nil {
		return s.entry
	}
	return nil
}

// offer makes e the offer of the slot.
func (u *union) offer(s *slot, e *entry) {
	if s.entry != nil && s.entry.key == e.key {
		s.entry = e
		if s.held {
			u.ledger.note(e.pod.UID, e)
		}
		return
	}
	u.release(s)
	s.entry, s.lostTo = e, ""
	if !s.queued {
		s.queued = true
		u.waiting = append(u.waiting, s)
	}
}

// withdraw ends the offer of the slot.
func (u *union) withdraw(s *slot) {
	u.release(s)
	s.entry = nil
}

func (u *union) release(s *slot) {
	if !s.held {
		return
	}
	uid := s.entry.pod.UID
	delete(u.uids, uid)
	delete(u.names, s.entry.key)
	u.freedNames[s.entry.key], u.freedUIDs[uid] = former{s.origin, uid}, s.origin
	s.held = false
	u.ledger.note(uid, nil)
}

// settle gives away what is free, and returns the pods that lose out newly, once
// for each pod that they lose to.
func (u *union) settle() []Rejection {
	slices.SortFunc(u.waiting, func(a, b *slot) int {
		return cmp.Or(cmp.Compare(a.origin.index, b.origin.index), cmp.Compare(a.seq, b.seq))
	})
	if len(u.freedNames) > 0 {
		for _, s := range u.waiting {
			if s.entry != nil && u.freedNames[s.entry.key] == (former{s.origin, s.entry.pod.UID}) {
				u.grant(s)
			}
		}
		for _, s := range u.waiting {
			if s.entry != nil && (u.freedNames[s.entry.key].origin == s.origin || u.freedUIDs[s.entry.pod.UID] == s.origin) {
				u.grant(s)
			}
		}
		clear(u.freedNames)
		clear(u.freedUIDs)
	}
	var rejections []Rejection
	u.waiting = slices.DeleteFunc(u.waiting, func(s *slot) bool {
		if s.entry == nil || s.held || u.grant(s) {
			s.queued = false
			return true
		}
		holder, what := u.names[s.entry.key], "name"
		if holder == nil {
			holder, what = u.uids[s.entry.pod.UID], "UID"
		}
		if winner := holder.entry.pod.UID; s.lostTo != winner {
			s.lostTo = winner
			rejections = append(rejections, Rejection{Source: s.origin.name, Pod: s.entry.pod, Err: duplicate(s.origin, s.entry.pod, holder, what)})
		}
		return false
	})
	return rejections
}

// grant gives the slot its UID and full name if both are free, as they are not if it
// has them.
func (u *union) grant(s *slot) bool {
	uid := s.entry.pod.UID
	if u.names[s.entry.key] != nil || u.uids[uid] != nil {
		return false
	}
	u.uids[uid], u.names[s.entry.key] = s, s
	s.held = true
	u.ledger.note(uid, s.entry)
	return true
}
