package podworkers

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// PodSyncer does the work on a pod that the workers have decided on. For one UID
// one method at a time is called, for different UIDs many at once. Methods must
// return soon after their context ends; that context is of the call alone and
// ends with it, so nothing that outlives the call may hang on it. A panic
// counts as an error of that call.
type PodSyncer interface {
	// SyncPod brings the pod one step nearer to its spec. The type is Create in
	// the first call of an incarnation, Change if the desired pod was updated
	// since the last call, else Sync. When the pod is to end, the context ends
	// with the cause [ErrTerminating], and SyncPod is not called again.
	SyncPod(ctx context.Context, typ UpdateType, pod *v1.Pod, status *runtime.PodStatus) (Result, error)
	// SyncTerminatingPod stops the pod. It returns nil only when nothing of the pod
	// runs any more, and is called until it does. When a shorter grace period is
	// asked for meanwhile, its context ends with the cause [ErrShortened], and it is
	// called again with that.
	SyncTerminatingPod(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus, t Termination) error
	// SyncTerminatingOrphan stops a pod of which only the runtime knows. It returns
	// nil only when nothing of it runs any more. gracePeriod is in seconds; nil
	// leaves it to what was recorded with the containers.
	SyncTerminatingOrphan(ctx context.Context, pod *runtime.Pod, status *runtime.PodStatus, gracePeriod *int64) error
	// SyncTerminatedPod takes down what the pod's containers needed, and settles its
	// final status. It is called until it returns nil; it may be the only call for
	// a pod that was killed before it started.
	SyncTerminatedPod(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus) error
}

// Result is what came of a sync.
type Result struct {
	// Terminal says that the pod has ended by itself and is to be terminated. It
	// counts only without an error.
	Terminal bool
	// Changed says that the runtime's state of the pod was changed or may have
	// been: the pod is synced again at once, with a status read after this sync.
	Changed bool
	// RetryAfter is the time until a sync has something to do even if nothing
	// changes meanwhile; 0 means never. After an error it is used if it is shorter
	// than the back-off.
	RetryAfter time.Duration
}

// Termination is how a pod is to end.
type Termination struct {
	// GracePeriod in seconds, never nil when the workers call, 1 at least. It never
	// grows from one call to the next.
	GracePeriod *int64
	// Evicted says that the pod is evicted.
	Evicted bool
	// Status, if not nil, changes the API status that is reported of the pod.
	Status func(*v1.PodStatus)
}

// StatusCache gives statuses that were read after a mark; [*runtime.Cache] is
// one. Now and First must not block.
type StatusCache interface {
	Now() runtime.Mark
	// First returns the mark for the first question about a pod that begins: Now will do.
	First(uid types.UID) runtime.Mark
	Newer(ctx context.Context, ref runtime.PodRef, after runtime.Mark) (*runtime.PodStatus, error)
}
