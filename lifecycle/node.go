package lifecycle

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Joiner is a component that needs the agent that it works in.
type Joiner interface {
	Component
	// Join is called once, when the agent is made, before any step, and for the components in their order. The
	// component keeps the node, and starts nothing. An error keeps the agent from being made. A component works in one
	// agent only.
	Join(node Node) error
}

// Node is the agent as its components have it, and all that they have of it. Each [Joiner] gets one of its own, under
// its name. What is about pods is valid from the time when the agent runs; before, no pod is known. It is safe for
// concurrent use, and its methods do not block unless they say so.
//
// Tests of components embed [NopNode] and write the methods that matter, or use package lifecycle/fake.
type Node interface {
	// NodeName is the name of the node.
	NodeName() string
	// Logger is that of the agent, under the name of the component.
	Logger() logr.Logger
	// Event emits an event about a pod, or about the node if it has no pod. Repeats are merged.
	Event(e runtime.Event)
	// Record adds to the history of a pod.
	Record(r runtime.Record)

	// Components are all components of the agent that are given to it, in their order. What a component offers to
	// others is an interface of the package that uses it, such as topology.Provider.
	Components() []Component
	// Add has run called when the agent runs, and waited for when it stops. If run returns an error before that, the
	// agent stops with it. It is for work beside that of a [Runner], and is called in [Joiner].Join only.
	Add(name string, run func(ctx context.Context) error)
	// AddHealthCheck and AddReadyCheck add to what the agent reports as its health, if a restart of the agent may help,
	// and as its readiness. Neither ends the agent, nor makes the node of a cluster NotReady: cluster.Config.Node has
	// checks that do. A check returns soon, and is safe for concurrent use.
	AddHealthCheck(name string, check func() error)
	AddReadyCheck(name string, check func() error)
	// NodeStatusChanged has each component that is a [NodeStatusHandler] report the status of the node anew.
	NodeStatusChanged()

	// Pods returns the pods that the agent has taken on, until all of them is gone, without their statuses. They are
	// shared and read-only.
	Pods() []*v1.Pod
	// State returns how far the pod is. It is the zero value for a pod that the agent has not taken on.
	State(uid types.UID) PodState
	// Gone reports whether what is left of the pod can be removed: it is not desired and has no worker, or it was
	// deleted in the API or evicted, and has ended. It is false until all sources have delivered their pods.
	Gone(uid types.UID) bool
	// RuntimeStatus returns what was last read of the pod in the runtime. It is shared and read-only. ok is false if
	// nothing is known of it.
	RuntimeStatus(uid types.UID) (status *runtime.PodStatus, ok bool)
	// VolumeStats returns the usage of the volumes of the pod. It reads file systems, and blocks meanwhile. The result
	// is valid also with an error, which is that of the volumes that are missing.
	VolumeStats(ctx context.Context, pod *v1.Pod) ([]statsv1alpha1.VolumeStats, error)

	// Sync has the pod synced, as if something had happened to it: once more if it is being synced. It does not wait
	// for that. It does nothing for a pod that the agent does not run.
	Sync(uid types.UID)
	// RefreshStatus has the API status of the pod generated anew, see [StatusEditor].
	RefreshStatus(uid types.UID)
	// Evict ends the pod: it becomes Failed with the reason and the message, and is not started again before its source
	// removes and adds it. It does not wait for the end. The error means that the agent has no such pod.
	Evict(uid types.UID, e runtime.Eviction) error
	// End ends the pod as a shutdown of the node does. It becomes Failed, stays desired, and runs again when the next
	// agent starts. The grace period is in seconds; nil means that of the pod. For a pod that is ending already, it can
	// only become shorter. End does not wait for the end.
	End(pod *v1.Pod, gracePeriod *int64)
	// DeleteUnusedContainers removes dead containers and sandboxes of pods that have ended, and logs of pods that are
	// gone. It returns when that is done.
	DeleteUnusedContainers(ctx context.Context) error
	// DeleteUnusedImages removes images that no container uses. It returns when that is done.
	DeleteUnusedImages(ctx context.Context) error
}

// PodState is how far a pod is that the agent has taken on.
type PodState struct {
	// Known means that the pod has a worker: it was admitted, and is not gone.
	Known bool
	// Ending means that the pod is to end.
	Ending bool
	// Stopped means that nothing of it runs.
	Stopped bool
	// Finished means that besides its volumes are taken down, and it will not be started again.
	Finished bool
}

// NodeStatusHandler is a component that reports the status of the node, such as the membership of a cluster.
type NodeStatusHandler interface {
	Component
	// NodeStatusChanged has the status of the node computed and reported at once. It must not block.
	NodeStatusChanged()
}

// NopNode is a [Node] that has no pods and does nothing. It is to be embedded, and is what a component has that is in
// no agent.
type NopNode struct{}

var _ Node = NopNode{}

// errNoPod is the error of Evict of a [NopNode].
var errNoPod = errors.New("no such pod runs on this node")

// NodeName implements [Node].
func (NopNode) NodeName() string { return "" }

// Logger implements [Node]. It is that of package slog.
func (NopNode) Logger() logr.Logger { return logging.OrDefault(logr.Logger{}) }

// Event implements [Node].
func (NopNode) Event(runtime.Event) {}

// Record implements [Node].
func (NopNode) Record(runtime.Record) {}

// Components implements [Node].
func (NopNode) Components() []Component { return nil }

// Add implements [Node].
func (NopNode) Add(string, func(context.Context) error) {}

// AddHealthCheck implements [Node].
func (NopNode) AddHealthCheck(string, func() error) {}

// AddReadyCheck implements [Node].
func (NopNode) AddReadyCheck(string, func() error) {}

// NodeStatusChanged implements [Node].
func (NopNode) NodeStatusChanged() {}

// Pods implements [Node].
func (NopNode) Pods() []*v1.Pod { return nil }

// State implements [Node].
func (NopNode) State(types.UID) PodState { return PodState{} }

// Gone implements [Node].
func (NopNode) Gone(types.UID) bool { return false }

// RuntimeStatus implements [Node].
func (NopNode) RuntimeStatus(types.UID) (*runtime.PodStatus, bool) { return nil, false }

// VolumeStats implements [Node].
func (NopNode) VolumeStats(context.Context, *v1.Pod) ([]statsv1alpha1.VolumeStats, error) {
	return nil, nil
}

// Sync implements [Node].
func (NopNode) Sync(types.UID) {}

// RefreshStatus implements [Node].
func (NopNode) RefreshStatus(types.UID) {}

// Evict implements [Node].
func (NopNode) Evict(types.UID, runtime.Eviction) error { return errNoPod }

// End implements [Node].
func (NopNode) End(*v1.Pod, *int64) {}

// DeleteUnusedContainers implements [Node].
func (NopNode) DeleteUnusedContainers(context.Context) error { return nil }

// DeleteUnusedImages implements [Node].
func (NopNode) DeleteUnusedImages(context.Context) error { return nil }
