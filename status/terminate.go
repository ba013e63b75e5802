package status

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// terminated makes s, the last status of a pod that has stopped, its final status, and
// returns it. The phase becomes final, and each container whose start was due has ended.
func terminated(pod *v1.Pod, s v1.PodStatus) v1.PodStatus {
	for i := range begun(s.InitContainerStatuses) {
		end(&s.InitContainerStatuses[i])
	}
	if initializationOver(pod, &s) {
		for i := range s.ContainerStatuses {
			end(&s.ContainerStatuses[i])
		}
	}
	for i := range s.EphemeralContainerStatuses {
		if cs := &s.EphemeralContainerStatuses[i]; cs.State.Running != nil {
			end(cs)
		}
	}
	if !podspec.IsPhaseTerminal(s.Phase) {
		s.Phase = v1.PodFailed
	}
	setConditions(pod, &s, readyToStartBefore(s.Conditions), isTrue(s.Conditions, v1.PodInitialized), false)
	return s
}

// end makes the state of a container Terminated. If the end of its last instance is known,
// the state is that one.
func end(cs *v1.ContainerStatus) {
	if cs.State.Terminated != nil {
		return
	}
	last := cs.LastTerminationState.Terminated
	if cs.State.Waiting != nil && last != nil {
		cs.State, cs.LastTerminationState = v1.ContainerState{Terminated: last}, v1.ContainerState{}
	} else {
		cs.State = lost(messageLost)
	}
	started := false
	cs.Ready, cs.Started = false, &started
}

// begun returns the init containers whose start was due: up to the last one that has run,
// and at least the first one.
func begun(list []v1.ContainerStatus) []v1.ContainerStatus {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].State.Waiting == nil || list[i].LastTerminationState.Terminated != nil {
			return list[:i+1]
		}
	}
	return list[:min(1, len(list))]
}

// initializationOver reports whether the start of the main containers was due.
func initializationOver(pod *v1.Pod, s *v1.PodStatus) bool {
	n := len(pod.Spec.InitContainers)
	if n == 0 {
		return true
	}
	for i := range s.ContainerStatuses {
		if cs := &s.ContainerStatuses[i]; cs.State.Waiting == nil || cs.LastTerminationState.Terminated != nil {
			return true
		}
	}
	last := &pod.Spec.InitContainers[n-1]
	cs := findStatus(s.InitContainerStatuses, last.Name)
	if cs == nil {
		return false
	}
	if podspec.IsSidecar(last) {
		return cs.Started != nil && *cs.Started
	}
	return succeededOnce(cs.State) || succeededOnce(cs.LastTerminationState)
}

func succeededOnce(s v1.ContainerState) bool {
	return s.Terminated != nil && s.Terminated.ExitCode == 0
}

// outgoing returns the status to deliver for s. If s has a final phase and holdBack is
// true, phase, reason, message and disruption are those of sent, the status before that;
// sent is nil if there is none. Otherwise a pod in a final phase is not ready. outgoing
// does not change s.
func outgoing(pod *v1.Pod, sent *v1.PodStatus, s v1.PodStatus, holdBack bool) v1.PodStatus {
	if !podspec.IsPhaseTerminal(s.Phase) || sent != nil && podspec.IsPhaseTerminal(sent.Phase) {
		return s
	}
	s.Conditions = append([]v1.PodCondition(nil), s.Conditions...)
	if holdBack {
		before := v1.PodStatus{Phase: v1.PodPending}
		switch {
		case sent != nil:
			before = *sent
		case pod.Status.Phase != "":
			before = pod.Status
		case anyRunning(&s):
			before.Phase = v1.PodRunning
		}
		s.Phase, s.Reason, s.Message = before.Phase, before.Reason, before.Message
		for i := range s.Conditions {
			if s.Conditions[i].Type == v1.DisruptionTarget {
				s.Conditions = append(s.Conditions[:i], s.Conditions[i+1:]...)
				break
			}
		}
		if c := findCondition(before.Conditions, v1.DisruptionTarget); c != nil {
			s.Conditions = append(s.Conditions, *c)
		}
		return s
	}
	reason := reasonPodFailed
	if s.Phase == v1.PodSucceeded {
		reason = reasonPodCompleted
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if (c.Type == v1.PodReady || c.Type == v1.ContainersReady) && c.Status == v1.ConditionTrue {
			c.Status, c.Reason, c.Message = v1.ConditionFalse, reason, ""
		}
	}
	return s
}

// anyRunning reports whether a container runs according to the status.
func anyRunning(s *v1.PodStatus) bool {
	for c := range podspec.Statuses(s) {
		if c.State.Running != nil {
			return true
		}
	}
	return false
}
