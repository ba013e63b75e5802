package prober

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Manager runs the probes of pods and holds their results. [Prober] is the
// default. The methods are safe for concurrent use and, but for Run, do not block.
//
// The methods of [runtime.ProbeResults] return what is held at that moment. An
// instance that was not probed yet has not started, is not ready and is not
// unhealthy.
type Manager interface {
	runtime.ProbeResults

	// Run runs probes until ctx ends, waits for those under way to return, and
	// returns nil. A second call returns an error that wraps
	// [runtime.ErrAlreadyRunning].
	Run(ctx context.Context) error

	// AddPod starts the probes of the pod, or holds them until Run is called. It is
	// called at each sync of the pod: probes that are as before continue, those that
	// differ are replaced, and all look at the cached status, as with Notify. The pod
	// must not be changed afterwards.
	//
	// The first call for a UID takes over the results that pod.Status contains.
	AddPod(pod *v1.Pod)
	// StopLivenessAndStartup ends the probes whose failure restarts a container,
	// because the pod is terminating. Readiness probes continue. Results stay.
	StopLivenessAndStartup(pod *v1.Pod)
	// RemovePod ends all probes of the pod and drops its results.
	RemovePod(pod *v1.Pod)
	// Cleanup removes all pods for which keep returns false. keep must not call
	// methods of the manager.
	Cleanup(keep func(uid types.UID) bool)

	// Notify has the probes of the pod look at its cached status. It is called
	// whenever that status may have changed.
	Notify(uid types.UID)
	// Results receives each change of a result while Run runs. It always returns the
	// same channel, which is never closed: the reader also selects on its own
	// context. A slow reader does not delay probes; it receives the latest result of
	// each instance and kind.
	Results() <-chan runtime.ProbeResult
}

// StatusReader returns the last known status of a pod without a call of the
// runtime.
type StatusReader interface {
	// Get returns the status, or false if none is known. The status must not be
	// changed.
	Get(uid types.UID) (*runtime.PodStatus, bool)
}
