package podconfig

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Change is one element of the stream of a [Config].
type Change struct {
	Op Op
	// Source is the name of the source of all the pods.
	Source string
	// Pods are the pods of the operation. They are shared and must not be changed. An Add
	// without pods means that the source has delivered its first snapshot, and that the
	// batch has no other change of the source.
	Pods []*v1.Pod
}

// Op is the operation of a [Change].
type Op int

// The operations, in their order within a batch. Pods are removed first, so that what
// they occupy, such as a host port, is free for the pods that are added.
const (
	// Remove means that the pods are not desired any more. If the deletion of a pod was requested,
	// the change has the version that the source delivered last, also if the reader has not
	// received that version before. Its DeletionGracePeriodSeconds is the grace period that counts.
	Remove Op = iota + 1
	// Restore adds pods of an earlier run of the agent, as they were in its stream; see
	// [Options].Restore. They are to run. Their source has not delivered a snapshot yet,
	// so other pods may follow, and these may be removed.
	Restore
	// Add adds pods that are new in the stream.
	Add
	// Update replaces pods whose spec, labels, annotations or source have changed.
	Update
	// Delete replaces pods that are to end gracefully: they have a deletion timestamp.
	// They are desired until they are removed.
	Delete
	// Reconcile replaces pods of which only the status has changed.
	Reconcile
)

// String returns kubelet's name of the operation, as in "ADD".
func (op Op) String() string {
	switch op {
	case Restore:
		return "RESTORE"
	case Add:
		return "ADD"
	case Update:
		return "UPDATE"
	case Delete:
		return "DELETE"
	case Remove:
		return "REMOVE"
	case Reconcile:
		return "RECONCILE"
	default:
		return "Op(" + strconv.Itoa(int(op)) + ")"
	}
}
