package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/status"
)

// The words of kubelet for pods that end with their node.
const (
	reasonDrained  = "Terminated"
	messageDrained = "Pod was terminated in response to imminent node shutdown."
)

// Drain ends all pods of the runtime, each in its own grace period, and returns nil when
// nothing runs; from its call on no pod is started, as long as the agent runs. The pods
// become Failed. They stay desired, and a checkpoint keeps them: they run
// again when the next agent starts. The agent must run meanwhile. If ctx ends first, the
// error has the number of pods that are left, and wraps its cause.
func (a *Agent) Drain(ctx context.Context) error {
	a.parts.PodWorkers.Drain()
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	left := 0 // as of the last list
	for {
		now, err := a.endPods(ctx)
		if err == nil {
			left = now
		}
		if left == 0 && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("kubeletkit: draining: %d pods still run: %w", left, context.Cause(ctx)), err)
		case <-tick.C:
		}
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
			a.kill(pod, &podworkers.KillOptions{Status: status.Evicted(pod, reasonDrained, messageDrained)})
		}
	}
	if left > 0 {
		return left, nil
	}
	listed, err := a.parts.Runtime.ListPods(ctx)
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
