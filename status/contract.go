package status

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// ErrGone is wrapped by the error of a [Sink] that has no such pod any more. The status is
// not delivered again.
var ErrGone = errors.New("the pod is gone")

// ErrRefused is wrapped by the error of a [Sink] whose receiver refuses what is delivered, and will
// probably refuse it again. That is no sign that the sink is at fault. The latest status is delivered again when it
// changes, after 2, 4, 8 s … 5 minutes, when the sink requests it, and when another status that was refused
// is accepted.
var ErrRefused = errors.New("the status is refused")

// Manager keeps the latest status of each pod and delivers it to a [Sink].
// All methods are safe for concurrent use, before, during and after Run. Embed [Base] in an
// implementation of your own, and Manager in a wrapper.
type Manager interface {
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
	// Pods returns a copy of each pod that has a status, with the latest one. That includes
	// pods that are not desired any more, until they are forgotten. All but the status is
	// shared and read-only.
	Pods() []*v1.Pod
	// Set makes s the latest status of the pod. The manager copies s and keeps a
	// reference to pod, which must not change afterwards. A final phase stays, and a
	// Running pod does not become Pending. The manager refuses and logs a status in which
	// a container runs or waits although it had ended and must not be restarted.
	Set(pod *v1.Pod, s v1.PodStatus)
	// Terminate makes the status of the pod final: its phase becomes Failed unless it
	// is Succeeded or Failed, and its containers have ended. It is called when all
	// containers of the pod have stopped and its volumes are torn down.
	Terminate(pod *v1.Pod)
	// PodFinished reports that a pod has finished: after Terminate, when its worker is done and
	// does not start it again. The manager calls PodFinished of the sink. It does not block.
	PodFinished(pod runtime.PodRef)
	// Recheck delivers the final phases that were held back, of pods that cannot have running
	// containers any more. It is called when the result of [Options.MayRun] may have changed.
	// The cost is proportional to the number of pods whose phase is held back.
	Recheck()
	// PodEnded reports that a pod is gone: nothing of it runs, and no source contains it. The
	// pod may have no status: an orphan, or a pod that was removed before it started. If
	// there is a status, PodEnded is the same as Forget. Otherwise the manager calls PodGone
	// of the sink.
	PodEnded(pod runtime.PodRef)
	// Forget drops the status of a pod that is gone. A status that has not been delivered
	// is still delivered, with a final phase that was held back, but not repeated if that
	// fails. Then the manager calls PodGone of the sink. A later Set of the same UID begins
	// without an earlier status and is delivered after that. Forget does nothing for a pod
	// without a status.
	Forget(uid types.UID)
	// Prune calls Forget for each pod for which keep returns false.
	Prune(keep func(uid types.UID) bool)
	// Healthy returns nil if no delivery hangs. Otherwise the error names the pods whose
	// delivery has not returned although its deadline has passed. A delivery that fails
	// is not an error.
	Healthy() error
}

// Base is a [Manager] that keeps nothing. It is to be embedded, so that methods added later
// do not break an implementation.
type Base struct{}

var _ Manager = Base{}

// Run implements [Manager]. It waits for the end of ctx.
func (Base) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Get implements [Manager].
func (Base) Get(types.UID) (s v1.PodStatus, ok bool) { return s, false }

// Pods implements [Manager].
func (Base) Pods() []*v1.Pod { return nil }

// Set implements [Manager].
func (Base) Set(*v1.Pod, v1.PodStatus) {}

// Terminate implements [Manager].
func (Base) Terminate(*v1.Pod) {}

// PodFinished implements [Manager].
func (Base) PodFinished(runtime.PodRef) {}

// Recheck implements [Manager].
func (Base) Recheck() {}

// PodEnded implements [Manager].
func (Base) PodEnded(runtime.PodRef) {}

// Forget implements [Manager].
func (Base) Forget(types.UID) {}

// Prune implements [Manager].
func (Base) Prune(func(types.UID) bool) {}

// Healthy implements [Manager].
func (Base) Healthy() error { return nil }

// Result is what a [Sink] has done with a status. The zero value means that the status is
// delivered.
type Result struct {
	// Later is more than 0 if the sink has not delivered the status, and no call has failed: it
	// waits for a status that will soon replace this one, or for its receiver to be ready. The
	// latest status is delivered after that time, or when it changes. The last status of a pod that
	// is gone is not: PodGone has it.
	Later time.Duration
}

// Sink receives statuses: an API server, a file, a message bus. Embed [SinkBase] in an
// implementation of your own, and Sink in a wrapper.
//
// Calls of Deliver and PodGone for different pods run concurrently; those for the same UID do not. Each
// call should return soon after ctx ends, which is at the latest after
// [Options.DeliveryTimeout]. All values are read-only, also after the call has returned.
type Sink interface {
	// Deliver delivers the status of the pod. If it returns an error, the latest status is
	// delivered again after a back-off, unless the error wraps [ErrGone]. See also [ErrRefused].
	// If calls for several pods fail and none succeeds, only one pod is tried, every 2 to 3 s. A new
	// status is always tried once.
	Deliver(ctx context.Context, pod *v1.Pod, status v1.PodStatus) (Result, error)
	// WatchReceiver watches the receiver until ctx ends. It calls changed when the status of a pod has to
	// be delivered again, although it is the same: another writer has overwritten it, or what Deliver waited for
	// has happened. A failed call is repeated at once then, but not sooner than 2 s after it began.
	// changed does not block, and ignores pods without a status. The manager calls
	// WatchReceiver once, in Run.
	WatchReceiver(ctx context.Context, changed func(uid types.UID))
	// PodFinished is called when a pod has finished: its containers have stopped, its volumes are
	// torn down, and it is not started again. A source may still contain it, as an API server does
	// until the sink deletes the pod there. Its last status may not be delivered yet. PodFinished must
	// not block, and may be called at any time, after a restart of the agent also again.
	PodFinished(pod runtime.PodRef)
	// PodGone is called at least once for each pod that is gone from the node. The containers of
	// the pod have stopped, and either no source contains the pod, or it is started again under
	// its UID. PodGone is repeated until it returns nil or an error that wraps [ErrGone].
	//
	// last is the last status of the pod. It is nil in three cases:
	//
	//  1. The pod never had a status.
	//  2. PodGone was accepted for the pod before.
	//  3. The agent was restarted since the last status.
	//
	// For each UID, the statuses of the pod are delivered first, then PodGone is called, then the
	// statuses of a later pod of the UID are delivered. The last status is missing if its
	// delivery failed.
	//
	// The manager keeps nothing on disk. If the agent stops while calls are due, the next agent
	// makes these:
	//
	//  1. With a checkpoint, all of them: the agent records each end until PodGone is accepted.
	//     Pods that a source has removed while no agent ran are among them.
	//  2. Without a checkpoint, those for pods that no source contains and of which the runtime
	//     still has something, running or dead. The other calls that were due are lost. A pod that
	//     a source contains has its call when it is gone.
	PodGone(ctx context.Context, pod runtime.PodRef, last *v1.PodStatus) error
}

// SinkBase has the methods of a [Sink] that has no use for the end of pods, and whose receiver does not
// change. It is to be embedded.
type SinkBase struct{}

// WatchReceiver implements [Sink]. It waits for the end of ctx.
func (SinkBase) WatchReceiver(ctx context.Context, _ func(types.UID)) { <-ctx.Done() }

// PodFinished implements [Sink].
func (SinkBase) PodFinished(runtime.PodRef) {}

// PodGone implements [Sink].
func (SinkBase) PodGone(context.Context, runtime.PodRef, *v1.PodStatus) error { return nil }
