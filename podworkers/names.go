package podworkers

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// claim is what a pod wants of its full name. Static pods of one full name must
// not run side by side, since they are the same pod to their author: they bind
// the same ports and write the same directories.
type claim int

const (
	claimNone  claim = iota
	claimWaits       // wants to start
	claimHolds       // may run something: nobody else may start
)

// claim says what the machine wants of its full name. API pods want nothing: the
// API server keeps their names apart. A pod that is to end never waits, and one
// that ends without having been started here may still have something running
// that an earlier agent has started, so that it holds until that is known.
func (m machine) claim() claim {
	switch {
	case !m.known() || m.finished || m.orphan == nil && !m.static:
		return claimNone
	case m.granted:
		return claimHolds
	case !m.requested():
		return claimWaits
	case m.phase < PhaseTerminated:
		return claimHolds
	default:
		return claimNone
	}
}

// names is who holds, and who waits for, each full name; the longest waiting is
// first.
type names map[string]*name

type name struct{ holders, waiting []types.UID }

// move notes that a machine has gone from one state to another.
func (n names) move(old, new machine) {
	from, to := old.claim(), new.claim()
	if from == to && old.ref == new.ref {
		return
	}
	n.drop(old, from)
	if to == claimNone {
		return
	}
	at := n[new.ref.FullName()]
	if at == nil {
		at = &name{}
		n[new.ref.FullName()] = at
	}
	if to == claimHolds {
		at.holders = append(at.holders, new.ref.UID)
	} else {
		at.waiting = append(at.waiting, new.ref.UID)
	}
}

func (n names) drop(m machine, c claim) {
	at := n[m.ref.FullName()]
	if c == claimNone || at == nil {
		return
	}
	same := func(uid types.UID) bool { return uid == m.ref.UID }
	at.holders = slices.DeleteFunc(at.holders, same)
	at.waiting = slices.DeleteFunc(at.waiting, same)
	if len(at.holders) == 0 && len(at.waiting) == 0 {
		delete(n, m.ref.FullName())
	}
}

// first returns who may start under a full name now.
func (n names) first(fullName string) (types.UID, bool) {
	at := n[fullName]
	if at == nil || len(at.holders) > 0 || len(at.waiting) == 0 {
		return "", false
	}
	return at.waiting[0], true
}
