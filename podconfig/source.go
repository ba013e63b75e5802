package podconfig

import (
	"context"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Source delivers the pods of one origin: a directory of manifests, a URL, an API
// server, an embedder's own control plane. It may also be a [SourceRestorer].
type Source interface {
	// Name identifies the source in its [Mux], as in "file", "http" or "api". It must
	// not change. It becomes the pods' annotation kubernetes.io/config.source; pods of
	// all names but "api" are static pods.
	Name() string
	// Run delivers the pods of the source to the sink until ctx ends. Calls of Run do not
	// overlap.
	//
	// If Run returns an error before ctx ends, it is called again after a back-off. The
	// pods stay meanwhile. Each run calls Set as soon as it knows all pods, because the
	// runs before may have missed changes. If Run returns nil after it has called Set,
	// the source is complete: its pods stay, and it is not called again. Returning nil
	// without having called Set counts as a failure.
	Run(ctx context.Context, sink Sink) error
}

// Sink receives the pods of a [Source]. Its methods do not wait for the reader of the
// stream. They are safe for concurrent use, and have no effect after Run has returned.
// Slices and pods that are passed must not be changed afterwards.
type Sink interface {
	// Set delivers a snapshot: the full list of the pods that the source wants. An empty
	// list means that it wants none, which differs from not having called Set yet.
	//
	// A pod that has not changed is best passed by the same pointer as before, because
	// it is not compared then.
	Set(pods []*v1.Pod)
	// Apply delivers a change of single pods. The cost is proportional to the number of
	// pods in the delta, and does not depend on the number of pods of the source. Apply
	// may be called before Set, but only Set makes the source seen.
	Apply(delta Delta)
	// NodeName returns [Options].NodeName: the node that the pods run on. It is empty if
	// none was given.
	NodeName() string
}

// Delta is a change of single pods of a source. All of it is one atomic step, so that
// a full name can pass from a UID in Remove to a UID in Update.
type Delta struct {
	// Update has the pods to add, or to replace by UID. The pod of a graceful deletion
	// is an update with a deletion timestamp. Nil pods are ignored. If a UID occurs
	// more than once, the last one counts.
	Update []*v1.Pod
	// Remove has the UIDs of the pods to remove. Unknown UIDs and those in Update are
	// ignored.
	Remove []types.UID
}

// SourceRestorer is an optional interface of a [Source] that cannot always tell at once
// whether it still wants the pods that were restored. It is found with
// [runtime.Optional].
type SourceRestorer interface {
	// Restored is called once, before the first Run, with the restored pods of this
	// source; see [Options].Restore. They must not be changed. To keep one of them, the
	// source includes it in its snapshot, by the same pointer. Restored is not called on
	// a source that is added to a running [Mux].
	Restored(pods []*v1.Pod)
}

// Op is the operation of a [Change].
type Op int

// The operations, in their order within a batch. Pods are removed first, so that what
// they occupy, such as a host port, is free for the pods that are added.
const (
	// Remove means that the pods are not desired any more.
	Remove Op = iota + 1
	// Restore adds pods of an earlier life of the agent, as they were in its stream;
	// see [Options].Restore. They are to run. Their source has not delivered a snapshot
	// yet: it may want other pods, and may not want these any more.
	Restore
	// Add adds pods that the reader does not know.
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

// Change is one element of the stream of a [PodConfig].
type Change struct {
	Op Op
	// Source is the name of the source of all the pods.
	Source string
	// Pods are the pods of the operation. They are shared and must not be changed. An Add
	// without pods means that the source has delivered its first snapshot, and no other
	// change of the batch says so.
	Pods []*v1.Pod
}
