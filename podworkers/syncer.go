package podworkers

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// PodSyncer does the work on a pod that the workers have decided on. For one UID, one
// method at a time is called; for different UIDs, many are called concurrently. A
// method must return soon after its context ends. The context ends with the call, so
// work that outlives the call must not use it. A panic is an error of the call.
type PodSyncer interface {
	// SyncPod brings the pod closer to its spec. typ is Create in the first call of an
	// incarnation, Change if the spec was updated since the last call, else Sync. When
	// the pod is to end, the context ends with the cause [ErrTerminating], and SyncPod
	// is not called again. An error is retried, except one that wraps a
	// [*runtime.TerminalError]: it fails the pod for good.
	SyncPod(ctx context.Context, typ UpdateType, pod *v1.Pod, status *runtime.PodStatus) (Result, error)
	// SyncTerminatingPod stops the pod. It returns nil only when nothing of the pod
	// runs any more, and is called until it does. When a shorter grace period is
	// requested meanwhile, the context ends with the cause [ErrShortened], and the
	// method is called again with the shorter one.
	SyncTerminatingPod(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus, t Termination) error
	// SyncTerminatingOrphan stops a pod that only the runtime knows. It returns nil
	// only when nothing of it runs any more. gracePeriod is in seconds; nil means the
	// one that was recorded with the containers.
	SyncTerminatingOrphan(ctx context.Context, pod *runtime.Pod, status *runtime.PodStatus, gracePeriod *int64) error
	// SyncTerminatedPod takes down what the pod's containers needed, and sets its final
	// status. It is called until it returns nil. It may be the only call for a pod that
	// was killed before it started.
	SyncTerminatedPod(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus) error
}

// Result is the outcome of a SyncPod.
type Result struct {
	// Terminal says that the pod has ended by itself and is to be terminated. It is
	// ignored if there is an error.
	Terminal bool
	// Changed says that the runtime's state of the pod was changed or may have been.
	// SyncPod is called again at once, with a status that was read after this call.
	Changed bool
	// RetryAfter is the time until a SyncPod has something to do even if nothing
	// changes meanwhile; 0 means never. After an error it is used if it is shorter than
	// the back-off.
	RetryAfter time.Duration
}

// Termination says how a pod is to end.
type Termination struct {
	// GracePeriod in seconds. When the workers call, it is not nil, at least 1, and
	// never longer than in the call before.
	GracePeriod *int64
	// Evicted says that the pod is evicted.
	Evicted bool
	// Status, if not nil, changes the API status of the pod before it is reported.
	Status func(*v1.PodStatus)
}

// StatusCache returns statuses that were read after a mark. [*runtime.Cache] is the
// default. Now and First must not block.
type StatusCache interface {
	// Now draws a mark: a status with a greater mark was read after this call.
	Now() runtime.Mark
	// First returns the mark for the first read of a pod. Now is a valid
	// implementation.
	First(uid types.UID) runtime.Mark
	// Newer returns a status of the pod that was read after the mark.
	Newer(ctx context.Context, ref runtime.PodRef, after runtime.Mark) (*runtime.PodStatus, error)
}
