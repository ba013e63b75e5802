package status

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// checkContainerStateTransition returns an error if a container runs or waits in s although it had
// ended in old and must not be restarted. Ephemeral containers are not checked, as in
// kubelet.
func checkContainerStateTransition(pod *v1.Pod, old, s *v1.PodStatus) error {
	if podspec.MayRestartAll(pod) {
		return nil // as in kubelet
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		var before, after *v1.ContainerStatus
		switch kind {
		case podspec.InitContainer:
			before, after = findStatus(old.InitContainerStatuses, c.Name), findStatus(s.InitContainerStatuses, c.Name)
		case podspec.MainContainer:
			before, after = findStatus(old.ContainerStatuses, c.Name), findStatus(s.ContainerStatuses, c.Name)
		}
		if before == nil || after == nil || before.State.Terminated == nil || after.State.Terminated != nil {
			continue
		}
		if kind == podspec.InitContainer && pod.Spec.RestartPolicy != v1.RestartPolicyNever {
			continue // in a new sandbox all init containers run again
		}
		if !podspec.ShouldRestart(pod, c, kind, before.State.Terminated.ExitCode) {
			return fmt.Errorf("container %q has ended with code %d and must not be restarted, but it has not ended "+
				"in the new status",
				c.Name, before.State.Terminated.ExitCode)
		}
	}
	return nil
}

// clampPhase changes the phase of s if it would go back from the phase of an earlier
// status. A final phase stays, with its reason and message. If the phase is the same, an
// empty reason or message is copied from the earlier status.
func clampPhase(s *v1.PodStatus, before ...*v1.PodStatus) {
	for _, b := range before {
		if podspec.IsPhaseTerminal(b.Phase) {
			s.Phase, s.Reason, s.Message = b.Phase, b.Reason, b.Message
			return
		}
	}
	for _, b := range before {
		if b.Phase == v1.PodRunning && (s.Phase == v1.PodPending || s.Phase == "") {
			s.Phase = v1.PodRunning
		}
	}
	for _, b := range before {
		if b.Phase != s.Phase {
			continue
		}
		if s.Reason == "" {
			s.Reason = b.Reason
		}
		if s.Message == "" {
			s.Message = b.Message
		}
	}
}

// inherit copies values from an earlier status: the transition times of conditions whose
// status is the same, the start time, and the observed generation if it is greater. now
// is the time of new transitions.
func inherit(s, old *v1.PodStatus, now time.Time) {
	for i := range s.Conditions {
		c := &s.Conditions[i]
		before := findCondition(old.Conditions, c.Type)
		switch {
		case before != nil && before.Status == c.Status && !before.LastTransitionTime.IsZero():
			c.LastTransitionTime = before.LastTransitionTime
		case c.LastTransitionTime.IsZero():
			c.LastTransitionTime = metav1.NewTime(now)
		}
	}
	if !old.StartTime.IsZero() {
		s.StartTime = old.StartTime.DeepCopy()
	} else if s.StartTime.IsZero() {
		t := metav1.NewTime(now)
		s.StartTime = &t
	}
	s.ObservedGeneration = max(s.ObservedGeneration, old.ObservedGeneration)
}
