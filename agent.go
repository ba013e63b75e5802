package kubeletkit

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// Agent is a node agent. Its methods are safe for concurrent use.
type Agent struct {
	opts  Options
	log   logr.Logger
	parts Parts
	loop  *syncloop.Loop
	// made is set when the agent has all its parts.
	made atomic.Bool
	// observers are the hooks of the options; Run waits for what they are to receive.
	observers []flow.Waiter

	mu      sync.Mutex
	started time.Time // when Run was called; zero before
	added   []component
	healthy []check
	ready   []check
}

// check is a health or ready check that was added.
type check struct {
	name string
	run  func() error
}

// component runs as long as the agent.
type component struct {
	name string
	run  func(ctx context.Context) error
}

// Parts returns the parts of the agent.
func (a *Agent) Parts() Parts { return a.parts }

// Add has run called with the agent's context when the agent runs, and waited for when
// it stops, so that further components live and end with the agent. If run returns an
// error while the agent runs, the agent stops and Run returns it; nil is no error. A panic
// of run counts as an error. Add fails if run is nil, and once Run was called.
//
// An HTTP server, for example, is such a component:
//
//	err := agent.Add("HTTP server", func(ctx context.Context) error {
//		return server.Serve(ctx, listener, server.Handler(agent, server.Options{}))
//	})
func (a *Agent) Add(name string, run func(ctx context.Context) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.started.IsZero() {
		return fmt.Errorf("kubeletkit: adding component %q: %w", name, runtime.ErrAlreadyRunning)
	}
	if run == nil {
		return fmt.Errorf("kubeletkit: adding component %q: its function is nil", name)
	}
	a.added = append(a.added, component{name, run})
	return nil
}

// AddHealthCheck adds a check to [Agent.Healthy]. The check must return soon and be safe
// for concurrent use.
func (a *Agent) AddHealthCheck(name string, run func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.healthy = append(a.healthy, check{name, run})
}

// AddReadyCheck adds a check to [Agent.Ready]. The check must return soon and be safe for
// concurrent use.
func (a *Agent) AddReadyCheck(name string, run func() error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = append(a.ready, check{name, run})
}

// start reports whether this is the first call, and returns the added components.
func (a *Agent) start() ([]component, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.started.IsZero()
	if first {
		a.started = time.Now()
	}
	return a.added, first
}

func (a *Agent) named(part string) logr.Logger { return a.log.WithName(part) }

// node is the handle of the agent that a component has.
type node struct {
	agent *Agent
	log   logr.Logger
}

var _ lifecycle.Node = (*node)(nil)

// made reports whether the agent has all its parts. Components have their nodes before.
func (n *node) made() bool { return n.agent.made.Load() }

// NodeName implements [lifecycle.Node].
func (n *node) NodeName() string { return n.agent.opts.NodeName }

// Logger implements [lifecycle.Node].
func (n *node) Logger() logr.Logger { return n.log }

// Event implements [lifecycle.Node].
func (n *node) Event(e runtime.Event) { n.agent.parts.Event.Emit(e) }

// Record implements [lifecycle.Node].
func (n *node) Record(r runtime.Record) { n.agent.parts.Record.Emit(r) }

// Components implements [lifecycle.Node].
func (n *node) Components() []lifecycle.Component { return slices.Clone(n.agent.opts.Join) }

// Add implements [lifecycle.Node].
func (n *node) Add(name string, run func(ctx context.Context) error) error {
	return n.agent.Add(name, run)
}

// AddHealthCheck implements [lifecycle.Node].
func (n *node) AddHealthCheck(name string, check func() error) { n.agent.AddHealthCheck(name, check) }

// AddReadyCheck implements [lifecycle.Node].
func (n *node) AddReadyCheck(name string, check func() error) { n.agent.AddReadyCheck(name, check) }

// NodeStatusChanged implements [lifecycle.Node].
func (n *node) NodeStatusChanged() {
	for _, c := range n.agent.opts.Join {
		if h, ok := c.(lifecycle.NodeStatusHandler); ok {
			h.NodeStatusChanged()
		}
	}
}

// Pods implements [lifecycle.Node].
func (n *node) Pods() []*v1.Pod {
	if !n.made() {
		return nil
	}
	parts := &n.agent.parts
	// a copy, since the list of the desired pods is shared
	pods := slices.Concat(parts.PodManager.Pods(), slices.DeleteFunc(parts.Status.Pods(),
		func(pod *v1.Pod) bool { return n.agent.desired(pod.UID) }))
	return slices.DeleteFunc(pods, func(pod *v1.Pod) bool { return !parts.PodWorkers.State(pod.UID).Known() })
}

// State implements [lifecycle.Node].
func (n *node) State(uid types.UID) lifecycle.PodState {
	if !n.made() {
		return lifecycle.PodState{}
	}
	st := n.agent.parts.PodWorkers.State(uid)
	return lifecycle.PodState{Known: st.Known(), Ending: st.TerminationRequested(), Stopped: st.Terminated(),
		Finished: st.Finished && !st.RestartRequested}
}

// Gone implements [lifecycle.Node].
func (n *node) Gone(uid types.UID) bool {
	return n.made() && n.agent.Synced() && n.agent.removable(uid)
}

// RuntimeStatus implements [lifecycle.Node].
func (n *node) RuntimeStatus(uid types.UID) (*runtime.PodStatus, bool) {
	if !n.made() {
		return nil, false
	}
	return n.agent.RuntimeStatus(uid)
}

// VolumeStats implements [lifecycle.Node].
func (n *node) VolumeStats(ctx context.Context, pod *v1.Pod) ([]statsv1alpha1.VolumeStats, error) {
	if !n.made() || !podspec.IsFileName(pod.UID) {
		return nil, nil
	}
	parts := &n.agent.parts
	return parts.Volumes.VolumeStats(ctx, pod, filepath.Join(parts.PodsDir, string(pod.UID)))
}

// Sync implements [lifecycle.Node].
func (n *node) Sync(uid types.UID) {
	if n.made() {
		_ = n.agent.Sync(uid) // a pod that the agent does not run needs no sync
	}
}

// RefreshStatus implements [lifecycle.Node].
func (n *node) RefreshStatus(uid types.UID) {
	if n.made() {
		n.agent.parts.PodSyncer.RefreshStatus(uid)
	}
}

// Evict implements [lifecycle.Node].
func (n *node) Evict(uid types.UID, e runtime.Eviction) error {
	if !n.made() {
		return ErrUnknownPod
	}
	return n.agent.Evict(uid, e)
}

// End implements [lifecycle.Node]. A pod that is ending already keeps the reason of its end.
func (n *node) End(pod *v1.Pod, gracePeriod *int64) {
	if !n.made() {
		return
	}
	kill := &podworkers.KillOptions{GracePeriod: gracePeriod}
	if st := n.agent.parts.PodWorkers.State(pod.UID); !st.TerminationRequested() || st.RestartRequested {
		kill.Status = n.agent.drained(pod)
	}
	n.agent.kill(pod, kill)
}

// DeleteUnusedContainers implements [lifecycle.Node].
func (n *node) DeleteUnusedContainers(ctx context.Context) error {
	if !n.made() {
		return nil
	}
	return n.agent.parts.GC.DeleteUnused(ctx)
}

// DeleteUnusedImages implements [lifecycle.Node].
func (n *node) DeleteUnusedImages(ctx context.Context) error {
	if !n.made() || n.agent.parts.ImageGC == nil {
		return nil
	}
	return n.agent.parts.ImageGC.DeleteUnusedImages(ctx)
}

// logEvents returns an EventFunc that logs each event under its message: warnings at level 0, others and those that are
// logged already at level 2.
func logEvents(log logr.Logger) runtime.EventFunc {
	return func(e runtime.Event) {
		l := log
		if e.Logged || e.Type != v1.EventTypeWarning {
			l = log.V(2)
		}
		if !l.Enabled() {
			return
		}
		values := []any{"reason", e.Reason}
		if e.Pod.UID != "" { // else it is about the node
			values = append(values, "pod", e.Pod)
		}
		if e.FieldPath != "" {
			values = append(values, "path", e.FieldPath)
		}
		if e.Count > 1 {
			values = append(values, "count", e.Count)
		}
		l.Info(e.Message, values...)
	}
}
