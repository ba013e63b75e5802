package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Joiner is a component that needs its agent.
type Joiner interface {
	Component
	// Join is called when the agent is made, before any step, for the components in their order. The component keeps
	// the node, and starts nothing. A later call replaces the node; it is made before Run only. An error keeps the
	// agent from being made. A component works in one agent only.
	Join(node Node) error
}

// Node is the handle of an agent. Each [Joiner] gets one of its own, under its name, and uses nothing else of the
// agent. Before the agent runs, the methods about pods know no pod. It is safe for concurrent use, and its methods do
// not block unless they say so. They are called without a lock of the component: RefreshStatus and NodeStatusChanged
// call components before they return.
//
// Tests of components use package lifecycle/fake, or embed [NopNode] and write the methods that matter.
type Node interface {
	// NodeName is the name of the node.
	NodeName() string
	// RootDir is the root directory of the agent, an absolute path. A component keeps what is its own in a file or a
	// directory of it with a name of the component.
	RootDir() string
	// Logger is that of the agent, under the name of the component.
	Logger() logr.Logger
	// Event emits an event about a pod, or about the node if it has no pod. Repeats are merged.
	Event(e runtime.Event)
	// Record adds to the history of a pod.
	Record(r runtime.Record)
	// Measure passes a measurement to that of the agent, see [runtime.Measurement].
	Measure(m runtime.Measurement)
	// States keeps the state of the component beside the agent's checkpoint, under a name of the component. Without a
	// checkpoint nothing is kept, and LoadState returns false. What must not be lost, or is read by a kubelet, is in a
	// file of RootDir instead.
	runtime.States

	// Components returns Options.Join of the agent in its order, see [Sort], the caller among them. What a component
	// offers to others is an interface of the package that uses it, such as topology.Provider.
	Components() []Component
	// Add adds work beside that of a [Runner]: the agent calls run when it runs, and waits for it when it stops. If run
	// returns an error before that, the agent stops with it. Add is called in [Joiner].Join; it fails if run is nil,
	// and when the agent runs.
	Add(name string, run func(ctx context.Context) error) error
	// AddHealthCheck and AddReadyCheck add to what the agent reports as its health, if a restart of the agent may help,
	// and as its readiness. Neither ends the agent, nor makes the node of a cluster NotReady: a [NodeReadyChecker]
	// does. A check returns soon, and is safe for concurrent use.
	AddHealthCheck(name string, check func() error)
	AddReadyCheck(name string, check func() error)
	// NodeStatusChanged calls each component that is a [NodeStatusHandler].
	NodeStatusChanged()

	// DesiredPods returns the pods that are to run, also those that are refused, and DesiredPod that of a UID. The list
	// and the pods are shared and read-only. The statuses are those of the source. complete is true if every source has
	// delivered its pods, and the agent has taken them in.
	DesiredPods() (pods []*v1.Pod, complete bool)
	DesiredPod(uid types.UID) (pod *v1.Pod, ok bool)
	// Pods returns the pods that have a worker, the desired ones first. They are shared and read-only. Their statuses
	// may be those of the source, or old. A pod that is removed meanwhile may be in the list twice.
	Pods() []*v1.Pod
	// State returns the progress of a pod. For a pod that has no worker, only MayRun can be true.
	State(uid types.UID) PodState
	// Gone reports whether what is left of the pod can be removed: it is not desired and has no worker, or it was
	// deleted in the API or evicted, and has ended. It is false until all sources have delivered their pods.
	Gone(uid types.UID) bool
	// RuntimeStatus returns what was last read of the pod in the runtime. It is shared and read-only. ok is false if
	// nothing is known of it.
	RuntimeStatus(uid types.UID) (status *runtime.PodStatus, ok bool)
	// RuntimeReadyWithin returns nil if the node can start pods: the runtime answers and is ready, the agent is not
	// being drained, and no [NodeReadyChecker] has an error. A runtime that does not answer counts as it was at its
	// last answer, until that is older than the duration. The error joins what is missing. Sources may not have
	// delivered.
	RuntimeReadyWithin(d time.Duration) error
	// PodStatus returns the latest API status of the pod, see [StatusHandler]. It is shared and read-only. ok is false
	// if the agent has generated none.
	PodStatus(uid types.UID) (status v1.PodStatus, ok bool)
	// VolumeStats returns the usage of the volumes of the pod. It reads file systems, and blocks meanwhile. The result
	// is valid also with an error, which is that of the volumes that are missing.
	VolumeStats(ctx context.Context, pod *v1.Pod) ([]statsv1alpha1.VolumeStats, error)

	// Sync requests a sync of the pod, as if something had happened to it: one more if it is being synced. So a step of
	// the pod does not request it, but returns a RetryAfter. A pod that the agent does not run is ignored.
	Sync(uid types.UID)
	// RefreshStatus generates the API status of the pod again, see [StatusEditor]. EditStatus must not call it.
	RefreshStatus(uid types.UID)
	// Evict ends the pod: it becomes Failed with the reason and the message, and is not started again before its source
	// removes and adds it. It does not wait for the end. The error wraps [ErrUnknownPod].
	Evict(uid types.UID, e runtime.Eviction) error
	// End ends a pod of Pods as a shutdown of the node does. It becomes Failed, stays desired, and runs again when the
	// next agent starts. The grace period is in seconds; nil means that of the pod. For a pod that is ending already,
	// it can only become shorter. End does not wait for the end. A pod that the agent does not run is ignored.
	End(pod *v1.Pod, gracePeriod *int64)
	// DeleteUnusedContainers removes dead containers and sandboxes of pods that have ended, and logs of pods that are
	// gone. It returns when that is done.
	DeleteUnusedContainers(ctx context.Context) error
	// DeleteUnusedImages removes images that no container uses. It returns when that is done.
	DeleteUnusedImages(ctx context.Context) error
}

// ErrUnknownPod means that the agent runs no pod with that UID.
var ErrUnknownPod = errors.New("no such pod runs on this node")

// PodState is the progress of a pod.
type PodState struct {
	// Known means that the pod has a worker. An orphan, of which nobody has a spec, can have one.
	Known bool
	// Ending means that the pod is to end.
	Ending bool
	// Stopped means that nothing of the pod runs.
	Stopped bool
	// Finished means that nothing of the pod runs, its volumes are taken down, and it is not started again.
	Finished bool
	// MayRun means that containers of the pod may run. Until all sources have delivered their pods, and the agent has
	// found the orphans in the runtime, that is so for each pod that has no worker: an earlier agent may have started
	// it.
	MayRun bool
	// Static means that the pod comes from another source than an API server.
	Static bool
	// Waiting means that the pod must not start before another pod of its full name has ended.
	Waiting bool
}

// NodeReadyChecker is a component that knows why the node cannot start pods, such as a shutdown of the machine. It
// makes the agent unready, and the node of a cluster NotReady. It calls [Node].NodeStatusChanged when it has another
// answer.
type NodeReadyChecker interface {
	Component
	// NodeReady returns why the node is not ready, for people. It must not block, and is safe for concurrent use. It
	// does not call [Node].RuntimeReadyWithin, which calls it.
	NodeReady() error
}

// NodeStatusHandler is a component that reports the status of the node, such as the membership of a cluster.
type NodeStatusHandler interface {
	Component
	// NodeStatusChanged has the status of the node computed and reported at once. It must not block.
	NodeStatusChanged()
}

// NopNode is a [Node] that has no pods and does nothing. Embed it in tests, and where a component is used without an
// agent, to give it a logger or a receiver of events:
//
//	type host struct{ lifecycle.NopNode }
//
//	func (host) Event(e runtime.Event) { … }
//
//	err := watcher.Join(host{})
//
// Components have it until Join is called.
type NopNode struct{}

var _ Node = NopNode{}

// NodeName implements [Node].
func (NopNode) NodeName() string { return "" }

// RootDir implements [Node].
func (NopNode) RootDir() string { return "" }

// Logger implements [Node]. It is that of package slog.
func (NopNode) Logger() logr.Logger { return logging.OrDefault(logr.Logger{}) }

// Event implements [Node].
func (NopNode) Event(runtime.Event) {}

// Record implements [Node].
func (NopNode) Record(runtime.Record) {}

// Measure implements [Node].
func (NopNode) Measure(runtime.Measurement) {}

// KeepState implements [Node].
func (NopNode) KeepState(string, any) {}

// LoadState implements [Node].
func (NopNode) LoadState(string, any) bool { return false }

// Components implements [Node].
func (NopNode) Components() []Component { return nil }

// Add implements [Node].
func (NopNode) Add(string, func(context.Context) error) error { return nil }

// AddHealthCheck implements [Node].
func (NopNode) AddHealthCheck(string, func() error) {}

// AddReadyCheck implements [Node].
func (NopNode) AddReadyCheck(string, func() error) {}

// NodeStatusChanged implements [Node].
func (NopNode) NodeStatusChanged() {}

// DesiredPods implements [Node].
func (NopNode) DesiredPods() ([]*v1.Pod, bool) { return nil, false }

// DesiredPod implements [Node].
func (NopNode) DesiredPod(types.UID) (*v1.Pod, bool) { return nil, false }

// Pods implements [Node].
func (NopNode) Pods() []*v1.Pod { return nil }

// State implements [Node].
func (NopNode) State(types.UID) PodState { return PodState{} }

// Gone implements [Node].
func (NopNode) Gone(types.UID) bool { return false }

// RuntimeStatus implements [Node].
func (NopNode) RuntimeStatus(types.UID) (*runtime.PodStatus, bool) { return nil, false }

// PodStatus implements [Node].
func (NopNode) PodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

// RuntimeReadyWithin implements [Node].
func (NopNode) RuntimeReadyWithin(time.Duration) error { return nil }

// VolumeStats implements [Node].
func (NopNode) VolumeStats(context.Context, *v1.Pod) ([]statsv1alpha1.VolumeStats, error) {
	return nil, nil
}

// Sync implements [Node].
func (NopNode) Sync(types.UID) {}

// RefreshStatus implements [Node].
func (NopNode) RefreshStatus(types.UID) {}

// Evict implements [Node].
func (NopNode) Evict(types.UID, runtime.Eviction) error { return ErrUnknownPod }

// End implements [Node].
func (NopNode) End(*v1.Pod, *int64) {}

// DeleteUnusedContainers implements [Node].
func (NopNode) DeleteUnusedContainers(context.Context) error { return nil }

// DeleteUnusedImages implements [Node].
func (NopNode) DeleteUnusedImages(context.Context) error { return nil }
