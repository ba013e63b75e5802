package checkpoint

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Store keeps pods, and the secrets and config maps that they refer to, so that they run
// again after a reboot. [*Dir] is the default. Implementations are safe for concurrent use.
// They embed [Base], or the Store that they wrap, so that methods added later do not break
// them.
//
// Only Load, LoadState and Run may wait for a disk.
type Store interface {
	runtime.States
	// Keep keeps the pod and the objects that it refers to, in place of the pod of the same
	// UID. The pod must not be changed afterwards.
	Keep(pod *v1.Pod)
	// Drop drops the pod, and the objects that no other kept pod refers to. There may be no
	// such pod.
	Drop(uid types.UID)
	// Prune drops the kept pods for which keep returns false. It is for pods without a
	// removal: they were removed while no agent ran, or together with their source. It is
	// called when all desired pods are known.
	Prune(keep func(uid types.UID) bool)
	// KeepEnd records that the end of the pod is to be reported when it is gone, so that an
	// end that is due when the agent stops is reported by the next one. It is called before
	// Drop.
	KeepEnd(pod runtime.PodRef)
	// DueEnds returns the pods of KeepEnd that are not desired and whose end was not
	// delivered. Kept pods that are not desired count as if KeepEnd was called. It is called
	// before Prune.
	DueEnds(desired func(uid types.UID) bool) []runtime.PodRef
	// EndDelivered removes the record of an end that was delivered.
	EndDelivered(uid types.UID)
	// Load returns the kept pods of the agent before. It is called once, before the other
	// methods and before the sources run.
	Load(ctx context.Context) []*v1.Pod
	// Objects returns a source that keeps what kept pods refer to, and answers with that while
	// src cannot. It is called once at most, before Run.
	Objects(src objects.Source) objects.Source
	// Run writes until ctx ends, and then what is left. An agent ends it after all other parts.
	Run(ctx context.Context) error
}

var _ Store = (*Dir)(nil)

// Base is a [Store] that keeps nothing, to be embedded.
type Base struct{}

var _ Store = Base{}

// Keep implements [Store].
func (Base) Keep(*v1.Pod) {}

// Drop implements [Store].
func (Base) Drop(types.UID) {}

// Prune implements [Store].
func (Base) Prune(func(types.UID) bool) {}

// KeepEnd implements [Store].
func (Base) KeepEnd(runtime.PodRef) {}

// DueEnds implements [Store]: there are none.
func (Base) DueEnds(func(types.UID) bool) []runtime.PodRef { return nil }

// EndDelivered implements [Store].
func (Base) EndDelivered(types.UID) {}

// Load implements [Store]: there are no pods.
func (Base) Load(context.Context) []*v1.Pod { return nil }

// Objects implements [Store]: it returns src.
func (Base) Objects(src objects.Source) objects.Source { return src }

// Run implements [Store]: it waits until ctx ends.
func (Base) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// KeepState implements [runtime.States].
func (Base) KeepState(string, any) {}

// LoadState implements [runtime.States]: there is nothing.
func (Base) LoadState(string, any) bool { return false }
