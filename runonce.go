package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// lookPeriod is how often RunOnce looks at the pods' phases.
const lookPeriod = 100 * time.Millisecond

// Report is what became of each pod of a [Agent.RunOnce].
type Report []PodReport

// PodReport is what became of one pod.
type PodReport struct {
	// Pod is "namespace/name".
	Pod   string
	Phase v1.PodPhase
	// Message says why a pod is not running, as far as that is known.
	Message string
}

// String is one line for each pod.
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

// RunOnce runs the agent until each pod that the sources want at first is Running
// or has ended, and stops it then; the pods go on running. What fails on the way,
// such as an image pull, is tried again with the back-off that it always has, until
// the context ends: give it a deadline. What the sources say later counts no more.
//
// It returns an error if a pod has failed, or if the context ended before all was
// done, which then has the context's cause; and in any case a report.
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
			if f, ok := runtime.Optional[podconfig.Freezer](a.parts.PodConfig); ok {
				f.Freeze()
			}
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

// why finds the most telling message of a status.
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
