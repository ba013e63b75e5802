package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// lookPeriod is the time between two looks of RunOnce and Drain at the pods.
const lookPeriod = 100 * time.Millisecond

// Report has the outcome of each pod of [Agent.RunOnce].
type Report []PodReport

// PodReport is the outcome of one pod.
type PodReport struct {
	// Pod is "namespace/name".
	Pod   string
	Phase v1.PodPhase
	// Message is the reason why the pod does not run; empty if none is known.
	Message string
}

// String returns a line for each pod.
func (r Report) String() string {
	var b strings.Builder
	for _, p := range r {
		fmt.Fprintf(&b, "%s: %s", p.Pod, p.Phase)
		if p.Message != "" {
			fmt.Fprintf(&b, " (%s)", p.Message)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// RunOnce runs the agent until each pod that the sources deliver first is Running or has
// ended, and then stops it; the pods go on running. Failures, such as those of image
// pulls, are retried with their usual back-off until the context ends, so give it a
// deadline. Later changes of the sources are ignored.
//
// RunOnce always returns a report. It returns an error if a pod has failed, or one that
// wraps the cause of the context if that ended first.
func (a *Agent) RunOnce(ctx context.Context) (Report, error) {
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1) // one value, of the one goroutine
	go func() { ended <- a.Run(rctx) }()
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	frozen := false
	for {
		select {
		case err := <-ended:
			if err == nil {
				err = context.Cause(ctx)
			}
			return report(a.Pods()), fmt.Errorf("not every pod got to run: %w", err)
		case <-tick.C:
		}
		if !frozen && a.Synced() {
			a.parts.PodConfig.Freeze()
			frozen = true
		}
		pods := a.Pods()
		if !frozen || slices.ContainsFunc(pods, unsettled) {
			continue
		}
		cancel()
		if err := <-ended; err != nil {
			return report(pods), err
		}
		return report(pods), failures(pods)
	}
}

func unsettled(pod *v1.Pod) bool {
	switch pod.Status.Phase {
	case v1.PodRunning, v1.PodSucceeded, v1.PodFailed:
		return false
	default:
		return true
	}
}

func report(pods []*v1.Pod) Report {
	r := make(Report, 0, len(pods))
	for _, pod := range pods {
		r = append(r, PodReport{Pod: pod.Namespace + "/" + pod.Name, Phase: pod.Status.Phase, Message: why(&pod.Status)})
	}
	slices.SortFunc(r, func(x, y PodReport) int { return strings.Compare(x.Pod, y.Pod) })
	return r
}

// why returns the message of a status that explains most.
func why(s *v1.PodStatus) string {
	if s.Phase == v1.PodRunning || s.Phase == v1.PodSucceeded {
		return ""
	}
	if s.Message != "" {
		return s.Message
	}
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Message != "":
			return c.Name + ": " + c.State.Waiting.Reason + ": " + c.State.Waiting.Message
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			return fmt.Sprintf("%s: %s, exit code %d", c.Name, c.State.Terminated.Reason, c.State.Terminated.ExitCode)
		}
	}
	return s.Reason
}

func failures(pods []*v1.Pod) error {
	var errs []error
	for _, pod := range pods {
		if pod.Status.Phase == v1.PodFailed {
			errs = append(errs, fmt.Errorf("pod %s/%s failed: %s", pod.Namespace, pod.Name, why(&pod.Status)))
		}
	}
	return errors.Join(errs...)
}
