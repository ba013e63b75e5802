package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/shutdown"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

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

// RootDir implements [lifecycle.Node].
func (n *node) RootDir() string { return n.agent.opts.RootDir }

// Logger implements [lifecycle.Node].
func (n *node) Logger() logr.Logger { return n.log }

// Event implements [lifecycle.Node].
func (n *node) Event(e runtime.Event) { n.agent.parts.Observer.Event.Emit(e) }

// Record implements [lifecycle.Node].
func (n *node) Record(r runtime.Record) { n.agent.parts.Observer.Record.Emit(r) }

// Measure implements [lifecycle.Node].
func (n *node) Measure(m runtime.Measurement) { n.agent.parts.Observer.Measure.Emit(m) }

// KeepState implements [lifecycle.Node].
func (n *node) KeepState(name string, state any) {
	if c := n.agent.parts.Checkpoint; c != nil {
		c.KeepState(name, state)
	}
}

// LoadState implements [lifecycle.Node].
func (n *node) LoadState(name string, into any) bool {
	c := n.agent.parts.Checkpoint
	return c != nil && c.LoadState(name, into)
}

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

// NodeStatusChanged implements [lifecycle.Node]. A panic of a component is logged: it does not end the caller.
func (n *node) NodeStatusChanged() {
	for _, c := range n.agent.opts.Join {
		h, ok := c.(lifecycle.NodeStatusHandler)
		if !ok {
			continue
		}
		if err := runtime.Recover(func() error { h.NodeStatusChanged(); return nil }); err != nil {
			n.log.Error(err, "A component that reports the status of the node has panicked", "component", c.Name())
		}
	}
}

// DesiredPods implements [lifecycle.Node].
func (n *node) DesiredPods() (pods []*v1.Pod, complete bool) {
	if !n.made() {
		return nil, false
	}
	complete = n.agent.Synced() // before the list, which then has all
	return n.agent.parts.PodManager.Pods(), complete
}

// DesiredPod implements [lifecycle.Node].
func (n *node) DesiredPod(uid types.UID) (*v1.Pod, bool) {
	if !n.made() {
		return nil, false
	}
	return n.agent.parts.PodManager.ByUID(uid)
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
		return lifecycle.PodState{MayRun: true}
	}
	st := n.agent.parts.PodWorkers.State(uid)
	return lifecycle.PodState{Known: st.Known(), Ending: st.TerminationRequested(), Stopped: st.Terminated(),
		Finished: st.Finished && !st.RestartRequested, MayRun: st.CouldHaveRunningContainers(),
		Static: st.Static, Waiting: st.Waiting}
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

// PodStatus implements [lifecycle.Node].
func (n *node) PodStatus(uid types.UID) (v1.PodStatus, bool) {
	if !n.made() {
		return v1.PodStatus{}, false
	}
	return n.agent.parts.Status.Get(uid)
}

// errNotMade is the error of an agent that is not made yet.
var errNotMade = errors.New("the agent has not been started")

// RuntimeReadyWithin implements [lifecycle.Node].
func (n *node) RuntimeReadyWithin(d time.Duration) error {
	if !n.made() {
		return errNotMade
	}
	return n.agent.RuntimeReadyWithin(d)
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

// DrainByPriority is like [Agent.Drain], except that pods end in the order of their priorities, each in the shorter
// of its own grace period and that of the periods, as in [Agent.EndPods]. Pods that are late, and pods without a
// spec, are waited for at last.
func (a *Agent) DrainByPriority(ctx context.Context, periods shutdown.Periods) error {
	a.parts.PodWorkers.Drain()
	if _, err := a.EndPods(ctx, periods); err != nil && ctx.Err() == nil {
		return err
	}
	return a.Drain(ctx)
}

// EndPods ends the pods in the order of their priorities, see [shutdown.End]: the pods of a group in the time of
// their period, with their volumes, before the next group. It returns the pods that were too late. The pods become
// Failed. They stay desired, and run again when the next agent starts. If ctx ends first, the other pods go on, and the
// error wraps its cause. The error of wrong periods is that of [shutdown.Periods.Validate].
//
// Unlike [Agent.Drain], it can be taken back, and does not keep new pods from starting: a component in
// Options.Join does.
func (a *Agent) EndPods(ctx context.Context, periods shutdown.Periods) (left []*v1.Pod, err error) {
	if err := periods.Validate(); err != nil {
		return nil, fmt.Errorf("kubeletkit: ending pods by priority: %w", err)
	}
	if left, err = shutdown.End(ctx, &node{a, a.named("shutdown")}, periods); err != nil {
		return left, fmt.Errorf("kubeletkit: ending pods by priority: %d pods that were to end still run: %w",
			len(left), err)
	}
	return left, nil
}
