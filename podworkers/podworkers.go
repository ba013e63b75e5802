package podworkers

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Workers drives pods through their lives: it decides when a pod is synced,
// terminated and taken down, and calls a [Syncer] for it. [Pool] is the
// default. The guarantees in the package documentation are part of the contract.
// All methods are safe for concurrent use, except
// that SyncKnownPods has a rule of its own.
type Workers interface {
	// Run makes the calls of the Syncer until ctx ends. Then it cancels the calls
	// under way, waits until they have returned, and returns nil; pods go on running.
	// A second call returns an error that wraps [runtime.ErrAlreadyRunning].
	Run(ctx context.Context) error
	// UpdatePod gives the worker of a pod an update. It never blocks. The spec of the
	// latest update counts; kills are merged and never undone. An invalid update has
	// only one effect: Done of its kill is called. Updates before Run are kept until
	// Run is called.
	UpdatePod(u Update)
	// SyncKnownPods compares the known pods with the desired ones. A finished pod that
	// is not desired is forgotten; any other pod that is not desired is terminated. It
	// returns the states of the pods that are known after that. The caller passes each
	// desired pod that is missing there to UpdatePod again.
	//
	// Before the call, UpdatePod must have returned for every desired pod; the caller
	// therefore makes both calls from one goroutine.
	SyncKnownPods(desired []*v1.Pod) map[types.UID]State
	// Drain has the workers start no pod any more. From its return on, an update that would
	// begin an incarnation has no effect, unless it is a kill, or the pod has ended in its
	// source or is to be deleted there: then it is only taken down. Incarnations that have
	// started go on until they are killed. An incarnation that was requested before and has
	// not started, because it waits for the end of another one, is not synced: it waits for
	// a kill. States show it as [State].Drained. It cannot be undone.
	Drain()
	// State returns the state of the pod. It has Phase 0 if the pod is not known.
	State(uid types.UID) State
	// TerminatingByFullName reports whether a static pod of the full name
	// ("<name>_<namespace>") is being terminated. Its mirror pod must not be deleted
	// before that has ended.
	TerminatingByFullName(fullName string) bool
	// Predecessor returns the pod whose end the pod waits for, because both have the same
	// full name; see [State].Waiting. ok is false if it waits for none.
	Predecessor(uid types.UID) (pod runtime.PodRef, ok bool)
}

// Base has the methods that [Workers] may do without: pods of one full name are not kept apart.
// Implementations embed it, so that methods added later do not break them.
type Base struct{}

// TerminatingByFullName implements [Workers]. It returns false.
func (Base) TerminatingByFullName(string) bool { return false }

// Predecessor implements [Workers]. It returns false.
func (Base) Predecessor(types.UID) (runtime.PodRef, bool) { return runtime.PodRef{}, false }

var _ Workers = (*Pool)(nil)
