package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/node/shutdown"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// The words of kubelet for pods that end with their node.
const (
	reasonDrained  = "Terminated"
	messageDrained = "Pod was terminated in response to imminent node shutdown."
)

// finishPatience is how long a drain waits for the volumes of pods of which nothing runs: one may never go, such as
// that of a server that does not answer.
const finishPatience = 10 * time.Second

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
	if left, err = shutdown.End(ctx, endingNode{a}, periods, a.named("shutdown")); err != nil {
		return left, fmt.Errorf("kubeletkit: ending pods by priority: %d pods that were to end still run: %w",
			len(left), err)
	}
	return left, nil
}

// endingNode is the agent as a [shutdown.Node].
type endingNode struct{ agent *Agent }

// Active implements [shutdown.Node].
func (n endingNode) Active() []*v1.Pod {
	pods := slices.Concat(n.agent.parts.PodManager.Pods(), n.agent.Terminating())
	return slices.DeleteFunc(pods, func(pod *v1.Pod) bool { return n.Ended(pod.UID) })
}

// End implements [shutdown.Node]. A pod that is ending already keeps the reason of its end.
func (n endingNode) End(pod *v1.Pod, gracePeriod *int64) {
	kill := &podworkers.KillOptions{GracePeriod: gracePeriod}
	if st := n.agent.parts.PodWorkers.State(pod.UID); !st.TerminationRequested() || st.RestartRequested {
		kill.Status = n.agent.drained(pod)
	}
	n.agent.kill(pod, kill)
}

// Ended implements [shutdown.Node].
func (n endingNode) Ended(uid types.UID) bool {
	st := n.agent.parts.PodWorkers.State(uid)
	return !st.Known() || st.Finished && !st.RestartRequested
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
