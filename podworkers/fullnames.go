package podworkers

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// claim is the relation of a pod to its full name. Static pods of one full name must
// not run side by side: for their author they are the same pod, and they bind the same
// ports and write the same directories.
type claim int

const (
	claimNone  claim = iota
	claimWaits       // is to start
	claimHolds       // may run something; no other pod of the name may start
)

// claim returns the machine's claim. Pods of an API server have none, because the server
// does not have two of one name. A pod that is to end never waits. A pod that ends before
// its start may have containers that an earlier agent has started, so it holds the name
// until it is terminated.
func (m machine) claim() claim {
	switch {
	case !m.known() || m.finished || m.orphan == nil && !m.static:
		return claimNone
	case m.mayStart:
		return claimHolds
	case !m.end.requested():
		return claimWaits
	case m.phase < PhaseTerminated:
		return claimHolds
	default:
		return claimNone
	}
}

// fullNames has the pods that hold each full name, and those that wait for it, the
// longest waiting first.
type fullNames map[string]*fullName

type fullName struct{ holders, waiting []types.UID }

// move applies the transition of a machine from one state to another.
func (n fullNames) move(old, new machine) {
	from, to := old.claim(), new.claim()
	if from == to && old.ref == new.ref {
		return
	}
	n.drop(old, from)
	if to == claimNone {
		return
	}
	at := n[new.fullName]
	if at == nil {
		at = &fullName{}
		n[new.fullName] = at
	}
	if to == claimHolds {
		at.holders = append(at.holders, new.ref.UID)
	} else {
		at.waiting = append(at.waiting, new.ref.UID)
	}
}

func (n fullNames) drop(m machine, c claim) {
	at := n[m.fullName]
	if c == claimNone || at == nil {
		return
	}
	same := func(uid types.UID) bool { return uid == m.ref.UID }
	at.holders = slices.DeleteFunc(at.holders, same)
	at.waiting = slices.DeleteFunc(at.waiting, same)
	if len(at.holders) == 0 && len(at.waiting) == 0 {
		delete(n, m.fullName)
	}
}

// first returns the pod that may start under a full name now.
func (n fullNames) first(name string) (types.UID, bool) {
	at := n[name]
	if at == nil || len(at.holders) > 0 || len(at.waiting) == 0 {
		return "", false
	}
	return at.waiting[0], true
}
