package status

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ErrGone is wrapped by the error of a [Sink] that has no such pod any more. The status is
// not delivered again.
var ErrGone = errors.New("the pod is gone")

// StatusManager keeps the latest status of each pod and delivers it to a [Sink].
// All methods are safe for concurrent use, before, during and after Run. Package
// status/statustest tests implementations.
//
// An implementation may also have the methods of [Rechecker], [EndReporter] and
// [HealthChecker].
type StatusManager interface {
	// Run delivers statuses until ctx ends. It returns nil after all calls of the sink
	// have returned. A second call returns an error that wraps
	// [runtime.ErrAlreadyRunning].
	//
	// Of each pod the latest status is delivered, in order. A failed call is repeated.
	// A call that does not return delays the pod that it is for, but no others.
	Run(ctx context.Context) error
	// Get returns the latest status of the pod, or false if there is none. The status
	// is read-only: it shares memory with the manager.
	Get(uid types.UID) (v1.PodStatus, bool)
	// Set makes s the latest status of the pod. The manager copies s and keeps a
	// reference to pod, which must not change afterwards. A final phase stays, and a
	// Running pod does not become Pending. The manager refuses and logs a status in which
	// a container runs or waits although it had ended and must not be restarted.
	Set(pod *v1.Pod, s v1.PodStatus)
	// Terminate makes the status of the pod final: its phase becomes Failed unless it
	// is Succeeded or Failed, and its containers have ended. It is called when all
	// containers of the pod have stopped and its volumes are torn down. The first
	// call causes a delivery even if the status stays the same.
	Terminate(pod *v1.Pod)
	// Forget drops the status of a pod that is gone. A status that has not been delivered
	// is still delivered, with a final phase that was held back, but not repeated if that
	// fails. A later Set of the same UID begins without an earlier status and is delivered
	// after that. Forget does nothing for a pod without a status.
	Forget(uid types.UID)
	// Prune calls Forget for each pod for which keep returns false. keep must not call
	// the manager.
	Prune(keep func(uid types.UID) bool)
}

// Rechecker is implemented by a [StatusManager] that holds back final phases while
// containers of the pod may run.
type Rechecker interface {
	// Recheck delivers the held back final phases of pods that cannot have running
	// containers any more. Call it when the result of [Options.MayRun] may have changed.
	// The cost is proportional to the number of pods whose phase is held back.
	Recheck()
}

// PodLister is implemented by a [StatusManager] that lists its pods.
type PodLister interface {
	// Pods returns a copy of each pod that has a status, with the latest one. That includes
	// pods that are not desired any more, until they are forgotten. All but the status is
	// shared and read-only.
	Pods() []*v1.Pod
}

// EndReporter is implemented by a [StatusManager] that delivers the end of pods to
// an [EndSink].
type EndReporter interface {
	// PodEnded reports that a pod is gone. It is needed for pods that may have no
	// status in the manager: an orphan, or a pod that was removed before it started.
	// If the manager has a status of the pod, PodEnded is the same as Forget.
	PodEnded(pod runtime.PodRef)
}

// HealthChecker is implemented by a [StatusManager] that can detect deliveries
// that hang.
type HealthChecker interface {
	// Healthy returns nil if no delivery hangs. Otherwise the error names the pods whose
	// delivery has not returned although its deadline has passed. A delivery that fails
	// is not an error.
	Healthy() error
}

// Sink receives statuses: an API server, a file, a message bus. It may also
// implement [EndSink].
type Sink interface {
	// Deliver delivers the status of the pod. Both values are read-only, also after
	// Deliver has returned. Calls for different pods run concurrently; calls for the
	// same UID do not. Deliver should return soon after ctx ends, which is at the
	// latest after [Options.DeliveryTimeout].
	//
	// If Deliver returns an error, the latest status is delivered again after a
	// back-off, unless the error wraps [ErrGone].
	Deliver(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error
}

// EndSink is implemented by a [Sink] that receives the end of pods, too. The manager finds
// it with [runtime.Optional].
type EndSink interface {
	// PodGone is called at least once for each pod that is gone from the node: its
	// containers have stopped, and no source contains it or it is started anew under its
	// UID. last is its last status, which
	// is read-only. It is nil if the pod never had a status, if PodGone has already
	// been accepted for the pod, or if the agent was restarted since.
	//
	// Per UID the order of calls is: the statuses of the pod, PodGone, and then the
	// statuses of a later pod of the same UID. The last status may be missing if its
	// delivery failed. PodGone runs under the same rules as Deliver, and is repeated
	// until it returns nil or an error that wraps [ErrGone].
	//
	// The manager keeps nothing on disk. With a checkpoint an agent records each end until
	// PodGone is accepted, and the next agent makes the calls that were due. Without one it
	// calls PodGone only for pods of which the runtime still holds something, running or
	// dead, and that no source contains; and for those that a source contains, when they
	// are gone. Calls for other pods that were due when the agent stopped are lost.
	PodGone(ctx context.Context, pod runtime.PodRef, last *v1.PodStatus) error
}
