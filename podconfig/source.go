package podconfig

import (
	"context"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// Source says which pods should run, as far as it goes: a directory of
// manifests, a URL, an API server, an embedder's own control plane. One that hears
// of single pods is a [DeltaSource].
type Source interface {
	// Name tells the source from the others of its [Mux], as in "file", "http" or
	// "api". It becomes the pods' annotation kubernetes.io/config.source, and every
	// name but "api" makes them static pods. It must not change.
	Name() string
	// Run delivers the source's pods until ctx ends. Each call of set hands over
	// the full list of the pods that the source wants now; an empty list says that
	// it wants none, which is another thing than not having called set yet. set
	// never blocks, may be called from any goroutine, and does nothing once Run has
	// returned. The slice and the pods in it belong to the Mux from then on and
	// must not be changed by anybody; handing over the same pod again, by its
	// pointer, is the cheap way to say that it did not change.
	//
	// When Run returns an error before ctx has ended, it is called again after a
	// back-off, and the pods that were set last stay. When it returns nil, the
	// source is complete: they stay for good.
	Run(ctx context.Context, set func(pods []*v1.Pod)) error
}

// Rememberer is a [Source] that wants to know which of its pods were restored, say because it
// cannot tell at once what became of them.
type Rememberer interface {
	// Restored is called by [Mux.Run] once, before it runs the source, with the pods that
	// [MuxOptions].Restore has returned of it. They must not be changed; naming them
	// again, by their pointers, has them go on. A source that is added later is not told.
	Restored(pods []*v1.Pod)
}

// Op is what happened to the pods of a [Change].
type Op int

// The operations, in the order in which they stand in one batch: what a pod that
// goes leaves behind, such as a host port, is free for those that come.
const (
	// Remove brings pods that are wanted no more.
	Remove Op = iota + 1
	// Restore brings pods that the reader does not know, as the agent that ran here
	// before knew them; see [MuxOptions]. They are to run, but their source has not
	// been heard: it may know others, and may not know these.
	Restore
	// Add brings pods that the reader does not know.
	Add
	// Update brings pods of known UID whose spec, labels, annotations or source
	// changed.
	Update
	// Delete brings pods that are to end gracefully: their deletion timestamp is
	// set. They stay desired until Remove.
	Delete
	// Reconcile brings pods of which nothing but the status changed.
	Reconcile
)

// String returns the kubelet's name of the operation, as in "ADD".
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

// Change is one step of the stream that a [Mux] delivers. The pods are shared
// and must not be changed.
type Change struct {
	Op Op
	// Source is the name of the source that all the pods come from.
	Source string
	// Pods that the operation is about. An Add without any says that the source
	// has been heard for the first time and has nothing new.
	Pods []*v1.Pod
}
