package podworkers

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// nameUse is the relation of a pod to its full name. Static pods of one full name must
// not run side by side: for their author they are the same pod, and they bind the same
// ports and write the same directories.
type nameUse int

const (
	nameUnused nameUse = iota
	nameWanted         // is to start
	nameHeld           // may run something; no other pod of the name may start
)

// nameUse returns what the machine has of its full name. Pods of an API server have none, because the server
// does not have two of one name. A pod that is to end never waits. A pod that ends before
// its start may have containers that an earlier agent has started, so it holds the name
// until it is terminated.
func (m machine) nameUse() nameUse {
	switch {
	case !m.known() || m.finished || m.orphan == nil && !m.static:
		return nameUnused
	case m.startAllowed:
		return nameHeld
	case !m.end.requested():
		return nameWanted
	case m.phase < PhaseTerminated:
		return nameHeld
	default:
		return nameUnused
	}
}

// fullNames has the pods that hold each full name, and those that wait for it, the
// longest waiting first.
type fullNames map[string]*fullName

type fullName struct{ holders, waiting []types.UID }

// move applies the transition of a machine from one state to another.
func (n fullNames) move(old, new machine) {
	from, to := old.nameUse(), new.nameUse()
	if from == to && old.ref == new.ref {
		return
	}
	n.drop(old, from)
	if to == nameUnused {
		return
	}
	at := n[new.fullName]
	if at == nil {
		at = &fullName{}
		n[new.fullName] = at
	}
	if to == nameHeld {
		at.holders = append(at.holders, new.ref.UID)
	} else {
		at.waiting = append(at.waiting, new.ref.UID)
	}
}

func (n fullNames) drop(m machine, use nameUse) {
	at := n[m.fullName]
	if use == nameUnused || at == nil {
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
