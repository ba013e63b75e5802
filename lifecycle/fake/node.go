// Package fake has a [lifecycle.Node] in memory, for tests of components, in virtual time, too.
//
//	node := fake.NewNode(pods...)
//	err := manager.Join(node)
//	…
//	node.Syncs() // the pods for which Sync was called
package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Node is a [lifecycle.Node]. A pod ends when End or Evict is called, unless [Node.SetStopDelay] says otherwise.
// Volumes have no usage, and DeleteUnusedContainers and DeleteUnusedImages do nothing. It is safe for concurrent use.
// Its zero value has no pods.
type Node struct {
	lifecycle.NopNode
	// Log is what Logger returns; the zero value is that of package slog. Do is called by Event, Record, Measure, Sync,
	// RefreshStatus and NodeStatusChanged with their names, if it is not nil. Both are set before the node is used.
	Log logr.Logger
	Do  func(method string)

	mu         sync.Mutex
	components []lifecycle.Component
	pods       []*v1.Pod
	statuses   map[types.UID]*runtime.PodStatus
	desired    *desired // nil: the pods
	notReady   error
	gone       map[types.UID]bool
	delay      map[types.UID]time.Duration
	ends       map[types.UID]time.Time // of pods that were told to end
	ready      []func() error
	healthy    []func() error
	work       []work

	told         []End
	evictions    []Eviction
	events       []runtime.Event
	records      []runtime.Record
	measurements []runtime.Measurement
	states       map[string][]byte // as JSON
	synced       []types.UID
	refreshed    []types.UID
	changes      int
}

// work is what was added by Add.
type work struct {
	name string
	run  func(ctx context.Context) error
}

// desired is what DesiredPods returns.
type desired struct {
	pods     []*v1.Pod
	complete bool
}

// End is an end that was requested.
type End struct {
	Pod string // the name
	// GracePeriod is in seconds, that of the pod if none was given.
	GracePeriod int64
	At          time.Time
}

// Eviction is an eviction that was requested.
type Eviction struct {
	UID types.UID
	runtime.Eviction
}

var _ lifecycle.Node = (*Node)(nil)

// NewNode returns a node with pods that run.
func NewNode(pods ...*v1.Pod) *Node { return &Node{pods: slices.Clone(pods)} }

// SetComponents sets what Components returns.
func (n *Node) SetComponents(components ...lifecycle.Component) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.components = components
}

// AddPods adds pods that run.
func (n *Node) AddPods(pods ...*v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = append(n.pods, pods...)
}

// SetDesired sets what DesiredPods returns. Before it is called, all pods of the node are desired, and there are no
// others.
func (n *Node) SetDesired(complete bool, pods ...*v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.desired = &desired{slices.Clone(pods), complete}
}

// SetRuntimeReady sets what RuntimeReadyWithin returns. At first it is nil.
func (n *Node) SetRuntimeReady(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notReady = err
}

// SetGone has the pods gone: they are no pods of the node any more.
func (n *Node) SetGone(pods ...types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, uid := range pods {
		set(&n.gone, uid, true)
	}
	n.pods = slices.DeleteFunc(n.pods, func(pod *v1.Pod) bool { return n.gone[pod.UID] })
}

// SetRuntimeStatus sets what was last read of the pod in the runtime.
func (n *Node) SetRuntimeStatus(uid types.UID, status *runtime.PodStatus) {
	n.mu.Lock()
	defer n.mu.Unlock()
	set(&n.statuses, uid, status)
}

// SetStopDelay sets the time that the pod takes to end, with its volumes. It ends at the end of its grace period
// at the latest.
func (n *Node) SetStopDelay(uid types.UID, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	set(&n.delay, uid, d)
}

func set[V any](m *map[types.UID]V, uid types.UID, value V) {
	if *m == nil {
		*m = map[types.UID]V{}
	}
	(*m)[uid] = value
}

// Active returns the pods that have not ended.
func (n *Node) Active() []*v1.Pod {
	return slices.DeleteFunc(n.Pods(), func(pod *v1.Pod) bool { return n.State(pod.UID).Finished })
}

// Ready and Healthy return the errors of the checks that were added by AddReadyCheck and AddHealthCheck.
func (n *Node) Ready() error   { return run(list(n, &n.ready)) }
func (n *Node) Healthy() error { return run(list(n, &n.healthy)) }

func run(checks []func() error) error {
	var errs []error
	for _, check := range checks {
		errs = append(errs, check())
	}
	return errors.Join(errs...)
}

// Added returns the names of what was added by Add, and Run calls the function of one of them.
func (n *Node) Added() (names []string) {
	for _, w := range list(n, &n.work) {
		names = append(names, w.name)
	}
	return names
}

// Run calls the function that was added by Add under the name. It returns an error if there is none.
func (n *Node) Run(ctx context.Context, name string) error {
	for _, w := range list(n, &n.work) {
		if w.name == name {
			return w.run(ctx)
		}
	}
	return fmt.Errorf("nothing was added under the name %q", name)
}

// Reset forgets what was requested, emitted, recorded and measured until now. Pods that are ending go on.
func (n *Node) Reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told, n.evictions, n.events, n.records, n.measurements = nil, nil, nil, nil, nil
	n.synced, n.refreshed, n.changes = nil, nil, 0
}

// Ends returns the ends that were requested, in their order.
func (n *Node) Ends() []End { return list(n, &n.told) }

// Evictions returns the evictions that were requested, in their order.
func (n *Node) Evictions() []Eviction { return list(n, &n.evictions) }

// Events returns the events that were emitted.
func (n *Node) Events() []runtime.Event { return list(n, &n.events) }

// Records returns what was added to the history of pods.
func (n *Node) Records() []runtime.Record { return list(n, &n.records) }

// Measurements returns what was measured.
func (n *Node) Measurements() []runtime.Measurement { return list(n, &n.measurements) }

// Syncs returns the pods for which Sync was called, in the order of the calls.
func (n *Node) Syncs() []types.UID { return list(n, &n.synced) }

// Refreshes returns the pods for which RefreshStatus was called, in the order of the calls.
func (n *Node) Refreshes() []types.UID { return list(n, &n.refreshed) }

// StatusChanges returns how often NodeStatusChanged was called.
func (n *Node) StatusChanges() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changes
}

func list[T any](n *Node, of *[]T) []T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(*of)
}

func add[T any](n *Node, to *[]T, e T, method string) {
	n.mu.Lock()
	*to = append(*to, e)
	n.mu.Unlock()
	n.do(method)
}

func (n *Node) do(method string) {
	if n.Do != nil {
		n.Do(method)
	}
}

// Logger implements [lifecycle.Node].
func (n *Node) Logger() logr.Logger { return logging.OrDefault(n.Log) }

// Components implements [lifecycle.Node].
func (n *Node) Components() []lifecycle.Component { return list(n, &n.components) }

// NodeName implements [lifecycle.Node].
func (n *Node) NodeName() string { return "node" }

// RootDir implements [lifecycle.Node]. It does not exist.
func (n *Node) RootDir() string { return "/fake" }

// Add implements [lifecycle.Node].
func (n *Node) Add(name string, run func(ctx context.Context) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.work = append(n.work, work{name, run})
	return nil
}

// AddHealthCheck implements [lifecycle.Node].
func (n *Node) AddHealthCheck(_ string, check func() error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.healthy = append(n.healthy, check)
}

// AddReadyCheck implements [lifecycle.Node].
func (n *Node) AddReadyCheck(_ string, check func() error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ready = append(n.ready, check)
}

// Event implements [lifecycle.Node].
func (n *Node) Event(e runtime.Event) { add(n, &n.events, e, "Event") }

// Record implements [lifecycle.Node].
func (n *Node) Record(r runtime.Record) { add(n, &n.records, r, "Record") }

// Measure implements [lifecycle.Node].
func (n *Node) Measure(m runtime.Measurement) { add(n, &n.measurements, m, "Measure") }

// KeepState implements [lifecycle.Node]: the state is kept as JSON, until the node is garbage. A second component with
// the node loads it.
func (n *Node) KeepState(name string, state any) {
	data, err := json.Marshal(state)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.states == nil {
		n.states = map[string][]byte{}
	}
	if n.states[name] = data; err != nil || state == nil {
		delete(n.states, name)
	}
}

// LoadState implements [lifecycle.Node].
func (n *Node) LoadState(name string, into any) bool {
	n.mu.Lock()
	data := n.states[name]
	n.mu.Unlock()
	return data != nil && json.Unmarshal(data, into) == nil
}

// Sync implements [lifecycle.Node].
func (n *Node) Sync(uid types.UID) { add(n, &n.synced, uid, "Sync") }

// RefreshStatus implements [lifecycle.Node].
func (n *Node) RefreshStatus(uid types.UID) { add(n, &n.refreshed, uid, "RefreshStatus") }

// NodeStatusChanged implements [lifecycle.Node].
func (n *Node) NodeStatusChanged() {
	n.mu.Lock()
	n.changes++
	n.mu.Unlock()
	n.do("NodeStatusChanged")
}

// DesiredPods implements [lifecycle.Node].
func (n *Node) DesiredPods() (pods []*v1.Pod, complete bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.desired == nil {
		return slices.Clone(n.pods), true
	}
	return slices.Clone(n.desired.pods), n.desired.complete
}

// DesiredPod implements [lifecycle.Node].
func (n *Node) DesiredPod(uid types.UID) (*v1.Pod, bool) {
	pods, _ := n.DesiredPods()
	i := slices.IndexFunc(pods, func(pod *v1.Pod) bool { return pod.UID == uid })
	if i < 0 {
		return nil, false
	}
	return pods[i], true
}

// PodStatus implements [lifecycle.Node]: it is that of the desired pod, if it has a phase.
func (n *Node) PodStatus(uid types.UID) (v1.PodStatus, bool) {
	pod, ok := n.DesiredPod(uid)
	if !ok || pod.Status.Phase == "" {
		return v1.PodStatus{}, false
	}
	return pod.Status, true
}

// RuntimeReadyWithin implements [lifecycle.Node].
func (n *Node) RuntimeReadyWithin(time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.notReady
}

// Pods implements [lifecycle.Node].
func (n *Node) Pods() []*v1.Pod { return list(n, &n.pods) }

// State implements [lifecycle.Node].
func (n *Node) State(uid types.UID) (s lifecycle.PodState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.ContainsFunc(n.pods, func(pod *v1.Pod) bool { return pod.UID == uid }) {
		return s
	}
	end, told := n.ends[uid]
	ended := told && !time.Now().Before(end)
	return lifecycle.PodState{Known: true, Ending: told, Stopped: ended, Finished: ended, MayRun: !ended}
}

// Gone implements [lifecycle.Node].
func (n *Node) Gone(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gone[uid]
}

// RuntimeStatus implements [lifecycle.Node].
func (n *Node) RuntimeStatus(uid types.UID) (*runtime.PodStatus, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	status, ok := n.statuses[uid]
	return status, ok
}

// End implements [lifecycle.Node].
func (n *Node) End(pod *v1.Pod, gracePeriod *int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	grace := n.end(pod, gracePeriod)
	n.told = append(n.told, End{pod.Name, grace, time.Now()})
}

// end has the pod end, and returns its grace period.
func (n *Node) end(pod *v1.Pod, gracePeriod *int64) int64 {
	grace := podspec.GracePeriod(pod)
	if gracePeriod != nil {
		grace = *gracePeriod
	}
	end := time.Now().Add(min(n.delay[pod.UID], podspec.Seconds(grace)))
	if before, again := n.ends[pod.UID]; !again || end.Before(before) {
		set(&n.ends, pod.UID, end)
	}
	return grace
}

// Evict implements [lifecycle.Node].
func (n *Node) Evict(uid types.UID, e runtime.Eviction) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.pods, func(pod *v1.Pod) bool { return pod.UID == uid })
	if i < 0 {
		return n.NopNode.Evict(uid, e)
	}
	n.end(n.pods[i], e.GracePeriod)
	n.evictions = append(n.evictions, Eviction{uid, e})
	return nil
}
