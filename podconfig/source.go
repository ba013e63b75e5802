package podconfig

import (
	"context"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Source delivers the pods of one origin: a directory of manifests, a URL, an API
// server, an embedder's own control plane.
type Source interface {
	// Name identifies the source in its [Mux], as in "file", "http" or "api". It must
	// not change. It becomes the pods' annotation kubernetes.io/config.source, and every
	// name but "api" makes them static pods.
	Name() string
	// Run delivers the source's pods to the sink until ctx ends. It may be called
	// again after it has returned, never before.
	//
	// If Run returns an error before ctx ends, it is called again after a back-off;
	// the pods delivered so far stay. The new run should call Set as soon as it knows
	// its pods, because changes may have been missed between the runs. If Run returns
	// nil, the source is complete: its pods stay for good.
	Run(ctx context.Context, sink Sink) error
}

// Sink receives the pods of a [Source]. Its methods do not block, are safe for
// concurrent use, and have no effect once Run has returned. Slices and pods passed
// to it must not be changed afterwards.
type Sink interface {
	// Set delivers a snapshot: the full list of the pods that the source wants now.
	// The empty list means that it wants none. A source has been seen only after
	// its first Set, so each run should call it once.
	//
	// Passing a pod again by the same pointer is the cheap way to leave it unchanged.
	Set(pods []*v1.Pod)
	// Apply delivers a change of single pods, in one atomic step. Its cost is
	// proportional to the number of pods in the delta, not to the number of pods that
	// the source has. A delta before the first Set is applied too.
	Apply(Delta)
	// NodeName returns the name of the node that the pods run on, see
	// [Options.NodeName]. It is empty if none was given.
	NodeName() string
}

// Delta is a change of single pods of a source. Remove takes effect before Update,
// and both in one step, so that a full name can pass from one UID to another.
type Delta struct {
	// Update adds pods and replaces those of the same UID. A pod that is to end
	// gracefully is updated with its deletion timestamp set. Nil pods are ignored.
	Update []*v1.Pod
	// Remove removes the pods of these UIDs. Unknown UIDs are ignored.
	Remove []types.UID
}

// SourceRestorer is an optional interface of a [Source] that keeps restored pods
// alive, for example while it cannot tell whether they are still wanted.
type SourceRestorer interface {
	// Restored is called once by [Mux.Run], before it runs the source, with the pods of
	// this source that [Options.Restore] returned. They must not be changed. The source
	// keeps one by delivering it again, by the same pointer. Restored is not called
	// for a source that is added after that.
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
	// before knew them; see [Options]. They are to run, but their source has not
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
