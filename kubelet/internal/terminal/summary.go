package terminal

import (
	"cmp"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Summary is the status of a pod in a few words.
type Summary struct {
	// Status is what kubectl has in the column STATUS.
	Status string
	// Ready and Total are the numbers of containers that are ready, and that are to run.
	Ready, Total int
	// Restarts of all containers, and the time of the last one, zero if it is not known.
	Restarts    int
	LastRestart time.Time
	// Message explains a Status that is not good. It may be empty.
	Message string
}

// Summarize returns the summary of a pod by the rules of kubectl.
func Summarize(pod *v1.Pod) Summary {
	s := Summary{
		Status: cmp.Or(pod.Status.Reason, string(pod.Status.Phase), "Pending"), Message: pod.Status.Message,
		Total: len(pod.Spec.Containers),
	}
	sidecars := map[string]bool{}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			sidecars[c.Name] = true
			s.Total++
		}
	}
	initialized := s.init(pod, sidecars)
	if initialized || conditionTrue(pod, v1.PodInitialized) {
		s.main(pod, sidecars)
	}
	if pod.DeletionTimestamp != nil && !podspec.IsPhaseTerminal(pod.Status.Phase) {
		s.Status = "Terminating"
	}
	s.Status = Escape(s.Status)
	return s
}

// init adds the init containers, and reports whether they are done.
func (s *Summary) init(pod *v1.Pod, sidecars map[string]bool) bool {
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		s.restarted(c)
		t, w := c.State.Terminated, c.State.Waiting
		switch {
		case t != nil && t.ExitCode == 0:
			continue
		case sidecars[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.Ready++
			}
			continue
		case t != nil:
			s.Status = "Init:" + endOf(t)
		case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
			s.Status, s.Message = "Init:"+w.Reason, w.Message
		default:
			s.Status = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return false
	}
	return true
}

// main adds the main containers. Restarts of init containers do not count any more,
// except those of sidecars.
func (s *Summary) main(pod *v1.Pod, sidecars map[string]bool) {
	s.Restarts, s.LastRestart = 0, time.Time{}
	for i := range pod.Status.InitContainerStatuses {
		if c := &pod.Status.InitContainerStatuses[i]; sidecars[c.Name] {
			s.restarted(c)
		}
	}
	running, failed := false, ""
	// Of several containers that are not running the first one decides.
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &pod.Status.ContainerStatuses[i]
		s.restarted(c)
		switch t, w := c.State.Terminated, c.State.Waiting; {
		case w != nil && w.Reason != "":
			s.Status, s.Message = w.Reason, w.Message
		case t != nil:
			s.Status = endOf(t)
			if t.ExitCode != 0 {
				failed = s.Status
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.Ready++
		}
	}
	if s.Status != "Completed" {
		return
	}
	switch {
	case running && conditionTrue(pod, v1.PodReady):
		s.Status = "Running"
	case failed != "":
		s.Status = failed
	case running:
		s.Status = "NotReady"
	}
}

func (s *Summary) restarted(c *v1.ContainerStatus) {
	s.Restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(s.LastRestart) {
		s.LastRestart = t.FinishedAt.Time
	}
}

// endOf returns in one word how a container ended.
func endOf(t *v1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

func conditionTrue(pod *v1.Pod, kind v1.PodConditionType) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
