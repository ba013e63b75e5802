package podworkers

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Syncer does the work on a pod that the workers have decided on. For one UID, the
// methods are called one at a time; for different UIDs, they are called concurrently. A
// method must return soon after its context ends. The context also ends with the call,
// so work that outlives the call must not use it. A panic is an error of the call.
type Syncer interface {
	// SyncPod brings the pod closer to its spec. typ is Create in the first call of an
	// incarnation, Change if the spec was updated since the last call, else Sync. When
	// the pod is to end, the context ends with the cause [ErrTerminating], and SyncPod
	// is not called again. An error is retried, except one that wraps a
	// [*runtime.TerminalError]: it fails the pod for good.
	SyncPod(ctx context.Context, typ UpdateType, pod *v1.Pod, status *runtime.PodStatus) (Result, error)
	// SyncTerminatingPod stops the pod. It returns nil only when nothing of the pod
	// runs any more, and is repeated until it returns nil. When a shorter grace period
	// is requested meanwhile, the context ends with the cause [ErrShortened], and the
	// method is called again with the shorter one.
	SyncTerminatingPod(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus, t Termination) error
	// SyncTerminatingOrphan stops an orphan. It returns nil only when nothing of it runs
	// any more, and is repeated until it returns nil. gracePeriod is in seconds; nil
	// means the one that was recorded with the containers.
	SyncTerminatingOrphan(ctx context.Context, pod *runtime.Pod, status *runtime.PodStatus, gracePeriod *int64) error
	// SyncTerminatedPod takes down the resources that the pod used, such as its volumes,
	// and sets its final status. It is repeated until it returns nil. It may be the only
	// call for a pod that was killed before it started.
	SyncTerminatedPod(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus) error
	// RefreshStatus brings the API status of the pod up to date with the results of its
	// probes, also while a call for the pod is under way: a pull, a hook or the end of the
	// pod may take minutes. It does nothing for an unknown pod. It is safe for concurrent
	// use and waits for no call.
	RefreshStatus(uid types.UID)
	// Updated is called when the pod was updated, or something has happened to it, while SyncPod for it is under way.
	// Another SyncPod follows that one. pod is the latest one, and the calls for a pod are in the order of the updates.
	// It must not block.
	Updated(pod *v1.Pod)
	// Run does the work of the syncer that belongs to no call, until ctx ends, and then returns nil. It may give the
	// workers updates, such as evictions. It is called once.
	Run(ctx context.Context, workers Workers) error
}

// SyncerBase has the methods that a [Syncer] may do without: there is nothing to take down.
// Implementations embed it, so that methods added later do not break them.
type SyncerBase struct{}

// SyncTerminatedPod implements [Syncer]. It returns nil.
func (SyncerBase) SyncTerminatedPod(context.Context, *v1.Pod, *runtime.PodStatus) error { return nil }

// RefreshStatus implements [Syncer]. It does nothing.
func (SyncerBase) RefreshStatus(types.UID) {}

// Updated implements [Syncer]. It does nothing.
func (SyncerBase) Updated(*v1.Pod) {}

// Run implements [Syncer]. It waits for the end of ctx.
func (SyncerBase) Run(ctx context.Context, _ Workers) error {
	<-ctx.Done()
	return nil
}

// Result is the outcome of a SyncPod.
type Result struct {
	// Terminal means that the pod has ended by itself and is to be terminated. It is
	// ignored if there is an error.
	Terminal bool
	// Changed means that the call has changed the pod in the runtime, or may have. SyncPod
	// is called again at once, with a status that was read after this call.
	Changed bool
	// RetryAfter is the time until a SyncPod has something to do even if nothing
	// changes meanwhile; 0 means never. After an error it is used if it is shorter than
	// the back-off.
	RetryAfter time.Duration
	// AtRest means that SyncPod has nothing to do unless something happens to the pod. Its resyncs become rarer
	// then, up to one in eight resync intervals, until the next update.
	AtRest bool
}

// Termination is the way in which a pod ends.
type Termination struct {
	// GracePeriod in seconds. The workers always set it, to at least 1, and never to
	// more than in the call before.
	GracePeriod *int64
	// Evicted means that the pod is evicted.
	Evicted bool
	// Status, if not nil, changes the API status of the pod before it is reported.
	Status func(*v1.PodStatus)
}
