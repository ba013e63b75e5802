package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// ErrUnknownPod means that the agent runs no pod with that UID.
var ErrUnknownPod = lifecycle.ErrUnknownPod

// Pods returns the desired pods with their current status. The statuses are copies; the
// rest of each pod is shared and must not be changed. [Agent.Sources] has the pods that are rejected.
func (a *Agent) Pods() []*v1.Pod {
	desired := a.parts.PodManager.Pods()
	out := make([]*v1.Pod, len(desired))
	for i, pod := range desired {
		withStatus := *pod
		if s, ok := a.parts.Status.Get(pod.UID); ok {
			withStatus.Status = *s.DeepCopy()
		}
		out[i] = &withStatus
	}
	return out
}

// Pod returns the desired pod of the UID as [Agent.Pods] does, without the cost of the others. ok is false if it is not
// desired.
func (a *Agent) Pod(uid types.UID) (pod *v1.Pod, ok bool) {
	desired, ok := a.parts.PodManager.ByUID(uid)
	if !ok {
		return nil, false
	}
	withStatus := *desired
	if s, ok := a.parts.Status.Get(uid); ok {
		withStatus.Status = *s.DeepCopy()
	}
	return &withStatus, true
}

// Terminating returns the pods that are not desired any more, with their current status:
// those that are being stopped, and those that have stopped, until housekeeping forgets
// them. As with [Agent.Pods], all but the statuses is shared. Orphans are not among them: the
// agent has no spec of an orphan.
func (a *Agent) Terminating() []*v1.Pod {
	pods := slices.DeleteFunc(a.parts.Status.Pods(), func(pod *v1.Pod) bool { return a.desired(pod.UID) })
	for _, pod := range pods {
		pod.Status = *pod.Status.DeepCopy()
	}
	return pods
}

// TranslateUID returns the UID of the static pod if uid is that of its mirror pod. Otherwise it returns uid. Users of
// an API server see the UID of the mirror pod only.
func (a *Agent) TranslateUID(uid types.UID) types.UID {
	if a.opts.API.TranslateUID == nil {
		return uid
	}
	return a.opts.API.TranslateUID(uid)
}

// RuntimeStatus returns what was last read of the pod in the runtime, without a call to
// the runtime: all instances of its containers, and where their logs are. It must not be
// changed. It returns false if nothing is known of the pod.
func (a *Agent) RuntimeStatus(uid types.UID) (*runtime.PodStatus, bool) {
	return a.parts.Cache.Get(uid)
}

// WatchRuntimeStatus returns a channel that receives a value when [Agent.RuntimeStatus] of the
// pod may show other containers or states, see [runtime.StatusCache]. The caller calls stop
// at the end.
func (a *Agent) WatchRuntimeStatus(uid types.UID) (changed <-chan struct{}, stop func()) {
	return a.parts.Cache.WatchStatus(uid)
}

// Exec runs the command in a container, see [runtime.Execer].
func (a *Agent) Exec(ctx context.Context, id runtime.ContainerID, cmd []string,
	timeout time.Duration) (runtime.ExecResult, error) {
	return a.parts.Runtime.Exec(ctx, id, cmd, timeout)
}

// AddSource adds a source of pods, also while the agent runs. Until it has delivered,
// nothing is cleaned up. The errors are those of [podconfig.Mux.Add], or of a replaced
// PodConfig.
func (a *Agent) AddSource(s podconfig.Source) error { return a.parts.PodConfig.Add(s) }

// RemoveSource removes the source of that name and its pods, and reports whether there
// was one. It returns when the source has ended; the pods end in their own time.
func (a *Agent) RemoveSource(name string) bool { return a.parts.PodConfig.Remove(name) }

// Sources returns the sources of pods, and which pods of them are rejected, see [podconfig.SourceState].
func (a *Agent) Sources() []podconfig.SourceState { return a.parts.PodConfig.Sources() }

// Sync has the pod synced now, as if something had happened to it. The error is
// [ErrUnknownPod].
func (a *Agent) Sync(uid types.UID) error {
	pod, err := a.running(uid)
	if err != nil {
		return fmt.Errorf("kubeletkit: syncing pod %s: %w", uid, err)
	}
	a.parts.PodWorkers.UpdatePod(podworkers.Update{Type: podworkers.Sync, Pod: pod, OnlyKnown: true,
		Received: time.Now()})
	return nil
}

// Evict ends the pod: it becomes Failed with the reason and the message, and is not
// started again before its source removes and adds it. Evict does not wait for the end. The
// error is [ErrUnknownPod].
func (a *Agent) Evict(uid types.UID, e runtime.Eviction) error {
	pod, err := a.running(uid)
	if err != nil {
		return fmt.Errorf("kubeletkit: evicting pod %s: %w", uid, err)
	}
	a.parts.Observer.Event.Emit(runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeWarning, Reason: e.Reason,
		Message: e.Message, Annotations: e.Annotations})
	a.kill(pod, &podworkers.KillOptions{Evict: true, GracePeriod: e.GracePeriod,
		Status: status.Evicted(pod, e.Reason, e.Message)})
	return nil
}

// running returns a desired pod that has a worker.
func (a *Agent) running(uid types.UID) (*v1.Pod, error) {
	pod, desired := a.parts.PodManager.ByUID(uid)
	if !desired || !a.parts.PodWorkers.State(uid).Known() {
		return nil, ErrUnknownPod
	}
	return pod, nil
}

func (a *Agent) kill(pod *v1.Pod, opts *podworkers.KillOptions) {
	a.parts.PodWorkers.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod, OnlyKnown: true, Kill: opts,
		Received: time.Now()})
}

// gone reports whether the pod is not desired and has no worker.
func (a *Agent) gone(uid types.UID) bool {
	// Before the first housekeeping a pod may be unknown because it is not yet
	// delivered, or is being taken in.
	if st := a.parts.PodWorkers.State(uid); !st.Synced || st.Known() {
		return false
	}
	return !a.desired(uid)
}

// removable reports whether the pod is gone, was deleted in the API and has ended, where it may be kept by finalizers
// for long, or was evicted and has ended: then the node needs the room.
func (a *Agent) removable(uid types.UID) bool {
	st := a.parts.PodWorkers.State(uid)
	return st.Finished && (st.Deleted || st.Evicted) && !st.RestartRequested || a.gone(uid)
}

// ended reports whether the pod has ended for good. A pod of another source than an API server is started again by the
// next agent if its containers do not show that it has ended.
func (a *Agent) ended(uid types.UID) bool {
	st := a.parts.PodWorkers.State(uid)
	return st.Finished && !st.Static && !st.RestartRequested
}

// desired reports whether the pod is desired.
func (a *Agent) desired(uid types.UID) bool {
	_, ok := a.parts.PodManager.ByUID(uid)
	return ok
}

// minLoopStale is how old the last round of the loop may be before the agent
// counts as unhealthy, at least (kubelet: minimum of SyncLoopHealthCheck).
const minLoopStale = 5 * time.Minute

// runChecks joins the errors of the checks.
func (a *Agent) runChecks(checks *[]check) error {
	a.mu.Lock()
	list := *checks // never changed in place
	a.mu.Unlock()
	var errs []error
	for _, c := range list {
		if err := c.run(); err != nil {
			errs = append(errs, fmt.Errorf("check %s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

// Healthy returns nil if the agent works. The error joins what is wrong: the loop has made
// no round for twice the sync frequency, and at least 5 minutes, which is also so if the
// runtime has not answered for that long; deliveries to the status sink hang; an added
// check fails. The time to the first round begins with Run. A restart of the agent may help.
func (a *Agent) Healthy() error {
	var errs []error
	if err := a.loopHealthy(); err != nil {
		errs = append(errs, err)
	}
	if err := a.parts.Status.Healthy(); err != nil {
		errs = append(errs, fmt.Errorf("status delivery: %w", err))
	}
	return errors.Join(append(errs, a.runChecks(&a.healthy))...)
}

// loopHealthy returns an error if the loop has made no round for too long.
func (a *Agent) loopHealthy() error {
	a.mu.Lock()
	started := a.started
	a.mu.Unlock()
	last := a.loop.LastIteration()
	stale := time.Since(last)
	if last.IsZero() {
		stale = time.Since(started)
	}
	switch {
	case started.IsZero() || stale <= max(2*a.opts.Workers.ResyncInterval, minLoopStale):
		return nil
	case last.IsZero():
		return fmt.Errorf("the agent was started %s ago, and its sync loop has made no round yet",
			stale.Round(time.Second))
	default:
		return fmt.Errorf("the sync loop made its last round %s ago", stale.Round(time.Second))
	}
}

// Ready returns nil if the agent can start pods: all sources have delivered, the runtime
// answers, the PLEG is healthy, and all added checks pass. The error joins what is
// missing.
func (a *Agent) Ready() error {
	var errs []error
	if !a.Synced() {
		errs = append(errs, a.notSynced())
	}
	if err := a.RuntimeReady(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, a.runChecks(&a.ready))...)
}

// errShuttingDown has the words of kubelet's node shutdown.
var errShuttingDown = errors.New("node is shutting down")

// RuntimeReady returns nil if the runtime answers and is ready, its network too, the PLEG is
// healthy, the agent is not being drained, and no component that is a [lifecycle.NodeReadyChecker] has an error. The
// error joins what is missing. Unlike [Agent.Ready], it does not wait for sources.
func (a *Agent) RuntimeReady() error { return a.RuntimeReadyWithin(0) }

// RuntimeReadyWithin is like [Agent.RuntimeReady], except that a runtime that does not answer counts
// as it was at its last answer, until that is older than the duration. It is what a node of a cluster
// reports as its readiness: a restart of the runtime takes a few seconds, and the pods run on.
func (a *Agent) RuntimeReadyWithin(patience time.Duration) error {
	errs := []error{a.loop.RuntimeErrorWithin(patience), a.parts.PLEG.Healthy()}
	if a.parts.PodWorkers.State("").Drained {
		errs = append(errs, errShuttingDown)
	}
	for _, c := range a.opts.Join {
		if checker, ok := c.(lifecycle.NodeReadyChecker); ok {
			errs = append(errs, runtime.Recover(checker.NodeReady))
		}
	}
	return errors.Join(errs...)
}

// notSynced returns an error with the names of the sources that have not delivered, as far
// as they are known.
func (a *Agent) notSynced() error {
	var missing []string
	for _, source := range a.parts.PodConfig.Sources() {
		if !source.Seen {
			missing = append(missing, source.Name)
		}
	}
	if len(missing) == 0 {
		return errors.New("not all sources have delivered their pods")
	}
	return fmt.Errorf("not all sources have delivered their pods; missing: %s", strings.Join(missing, ", "))
}

// Synced reports whether every source has delivered the pods that are to run, and the
// agent has taken them in: [Agent.Pods] has them.
func (a *Agent) Synced() bool { return a.loop.Synced() }

// networkReady returns an error while pods with a network of their own cannot be started.
func (a *Agent) networkReady() error {
	if err := a.loop.RuntimeError(); errors.Is(err, runtime.ErrNetworkNotReady) {
		return err
	}
	return nil
}

// The words of kubelet for pods that end with their node.
const (
	reasonDrained  = "Terminated"
	messageDrained = "Pod was terminated in response to imminent node shutdown."
)

// finishPatience is how long a drain waits for the volumes of pods of which nothing runs: one may never go, such as
// that of a server that does not answer.
const finishPatience = 10 * time.Second

// lookPeriod is the time between two looks of RunOnce and Drain at the pods.
const lookPeriod = 100 * time.Millisecond

// Drain ends all pods of the runtime, each in its own grace period, and returns nil when
// nothing runs and the volumes of the pods are taken down; if one cannot be taken down in ten seconds, it is logged.
// From its call on no pod is started, as long as the agent runs. The pods become Failed. They stay desired, and a
// checkpoint keeps them: they run again when the next agent starts. The agent must run meanwhile. If ctx ends first,
// the error has the number of pods that are left, and wraps its cause.
func (a *Agent) Drain(ctx context.Context) error {
	a.parts.PodWorkers.Drain()
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	left := 0           // as of the last list
	var ended time.Time // when nothing was left
	for {
		now, err := a.endPods(ctx)
		if err == nil {
			left = now
		}
		if left == 0 && err == nil {
			if ended.IsZero() {
				ended = time.Now()
			}
			unfinished := a.unfinished()
			if len(unfinished) == 0 {
				return nil
			}
			if time.Since(ended) >= finishPatience {
				a.logUnfinished(unfinished)
				return nil
			}
		}
		select {
		case <-ctx.Done():
			if left == 0 && err == nil {
				a.logUnfinished(a.unfinished())
				return nil
			}
			return errors.Join(fmt.Errorf("kubeletkit: draining: %d pods still run: %w", left, context.Cause(ctx)), err)
		case <-tick.C:
		}
	}
}

func (a *Agent) logUnfinished(pods []string) {
	a.log.Info("Pods have ended, and not all of their volumes are taken down; the next agent does that", "pods", pods)
}

// unfinished returns the pods of which nothing runs, and whose volumes may not be taken down yet.
func (a *Agent) unfinished() (pods []string) {
	for _, pod := range a.parts.PodManager.Pods() {
		if st := a.parts.PodWorkers.State(pod.UID); st.Known() && st.Terminated() && !st.Finished &&
			!st.RestartRequested {
			pods = append(pods, runtime.RefOf(pod).String())
		}
	}
	return pods
}

// drained returns a function that makes the status that of a pod that ends with its node. A pod that has succeeded
// stays so, as in kubelet.
func (a *Agent) drained(pod *v1.Pod) func(*v1.PodStatus) {
	ended := status.Evicted(pod, reasonDrained, messageDrained)
	if last, _ := a.parts.Status.Get(pod.UID); last.Phase != v1.PodSucceeded {
		return ended
	}
	return func(s *v1.PodStatus) {
		ended(s)
		s.Phase = v1.PodSucceeded
	}
}

// endPods has all pods ended that are not ending already, and returns how many still run.
func (a *Agent) endPods(ctx context.Context) (left int, err error) {
	workers := a.parts.PodWorkers
	for _, pod := range a.parts.PodManager.Pods() {
		switch st := workers.State(pod.UID); {
		case !st.Known() || st.Terminated() && !st.RestartRequested: // refused, or ended
		case st.TerminationRequested() && !st.RestartRequested:
			left++
		default: // also of a pod that is to be started anew
			left++
			a.kill(pod, &podworkers.KillOptions{Status: a.drained(pod)})
		}
	}
	if left > 0 {
		return left, nil
	}
	listed, err := runtime.ListPods(ctx, a.parts.Runtime)
	if err != nil {
		return 0, err
	}
	for _, pod := range listed {
		st := workers.State(pod.UID)
		ending := st.Known() && !st.Terminated() // it may fail to stop although nothing of it seems to run
		if !ending && !pod.Running() {
			continue
		}
		left++
		if !st.Known() {
			workers.UpdatePod(podworkers.Update{Type: podworkers.Kill, Orphan: pod})
		}
	}
	return left, nil
}
