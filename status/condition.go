package status

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Reasons of conditions, the same as kubelet's.
const (
	reasonPodCompleted             = "PodCompleted"
	reasonPodFailed                = "PodFailed"
	reasonContainersNotReady       = "ContainersNotReady"
	reasonContainersNotInitialized = "ContainersNotInitialized"
	reasonReadinessGatesNotReady   = "ReadinessGatesNotReady"
	reasonRestartAllStarted        = "RestartAllContainersStarted"
	reasonSandboxNotReady          = "PodSandboxNotReady"
)

// messageNoSandbox is kubelet's message of reasonSandboxNotReady for a pod without a sandbox.
const messageNoSandbox = "no pod sandbox exists"

// Owned reports whether only the agent writes conditions of the type. Owned
// conditions that the agent does not generate are removed.
func Owned(t v1.PodConditionType) bool {
	switch t {
	case v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers,
		v1.PodResizeInProgress, v1.PodResizePending, v1.AllContainersRestarting:
		return true
	}
	return false
}

func findCondition(list []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// isTrue reports whether the list has a condition of the type that is True.
func isTrue(list []v1.PodCondition, t v1.PodConditionType) bool {
	c := findCondition(list, t)
	return c != nil && c.Status == v1.ConditionTrue
}

// putCondition replaces the condition of the same type or adds c.
func putCondition(list []v1.PodCondition, c v1.PodCondition) []v1.PodCondition {
	if old := findCondition(list, c.Type); old != nil {
		*old = c
		return list
	}
	return append(list, c)
}

// lastOfEach returns the last condition of each type.
func lastOfEach(list []v1.PodCondition) []v1.PodCondition {
	var out []v1.PodCondition
	for i := range list {
		out = putCondition(out, list[i])
	}
	return out
}

// setConditions generates the owned conditions from the rest of the status and puts
// them behind the foreign ones. wasInitialized means that the pod was initialized in its
// previous status, restartsAll that all containers are being restarted. inherit sets the transition times.
func setConditions(pod *v1.Pod, s *v1.PodStatus, readyToStart v1.PodCondition, wasInitialized, restartsAll bool) {
	conditions := slices.DeleteFunc(s.Conditions, func(c v1.PodCondition) bool { return Owned(c.Type) })
	containers := containersReady(pod, s)
	owned := []v1.PodCondition{
		readyToStart,
		initialized(pod, s, wasInitialized),
		ready(pod, containers, conditions),
		containers,
		{Type: v1.PodScheduled, Status: v1.ConditionTrue},
	}
	if podspec.MayRestartAll(pod) {
		owned = append(owned, restartCondition(s.Phase, restartsAll))
	}
	for _, c := range owned {
		c.ObservedGeneration = pod.Generation
		conditions = append(conditions, c)
	}
	s.Conditions = conditions
}

// readyToStartBefore returns the condition of the list, which is False if it has none.
func readyToStartBefore(list []v1.PodCondition) v1.PodCondition {
	if c := findCondition(list, v1.PodReadyToStartContainers); c != nil {
		return v1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}
	}
	return v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse, Reason: reasonSandboxNotReady,
		Message: messageNoSandbox}
}

// initialized is True once the init containers have succeeded and the sidecars have
// started. It stays so, also while the init containers run again in a new sandbox.
func initialized(pod *v1.Pod, s *v1.PodStatus, was bool) v1.PodCondition {
	var missing, incomplete []string
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		cs := findStatus(s.InitContainerStatuses, c.Name)
		switch {
		case cs == nil:
			missing = append(missing, c.Name)
		case podspec.IsSidecar(c) && (cs.Started == nil || !*cs.Started):
			incomplete = append(incomplete, c.Name)
		case !podspec.IsSidecar(c) && !cs.Ready:
			incomplete = append(incomplete, c.Name)
		}
	}
	c := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	message := describe(missing, incomplete, "incomplete")
	switch {
	case s.Phase == v1.PodSucceeded && len(missing) == 0:
		c.Reason = reasonPodCompleted
	case message == "" || mainStarted(pod, s) || was:
	default:
		c.Status, c.Reason, c.Message = v1.ConditionFalse, reasonContainersNotInitialized, message
	}
	return c
}

// restartCondition is True while all containers are being restarted: until the instances of those that requested it are
// removed. Then they start anew.
func restartCondition(phase v1.PodPhase, restartsAll bool) v1.PodCondition {
	c := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
	switch {
	case phase == v1.PodSucceeded:
		c.Reason = reasonPodCompleted
	case phase == v1.PodFailed:
		c.Reason = reasonPodFailed
	case restartsAll:
		c.Status, c.Reason, c.Message = v1.ConditionTrue, reasonRestartAllStarted,
			"container exited with restart policy rule"
	}
	return c
}

// mainStarted reports whether a main container runs or has ended.
func mainStarted(pod *v1.Pod, s *v1.PodStatus) bool {
	for i := range pod.Spec.Containers {
		cs := findStatus(s.ContainerStatuses, pod.Spec.Containers[i].Name)
		if cs != nil && (cs.State.Running != nil || cs.State.Terminated != nil) {
			return true
		}
	}
	return false
}

// containersReady is True when all main containers and sidecars are ready and the
// phase is not final.
func containersReady(pod *v1.Pod, s *v1.PodStatus) v1.PodCondition {
	var missing, unready []string
	check := func(list []v1.ContainerStatus, name string) {
		if cs := findStatus(list, name); cs == nil {
			missing = append(missing, name)
		} else if !cs.Ready {
			unready = append(unready, name)
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podspec.IsSidecar(c) {
			check(s.InitContainerStatuses, c.Name)
		}
	}
	for i := range pod.Spec.Containers {
		check(s.ContainerStatuses, pod.Spec.Containers[i].Name)
	}

	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse}
	switch message := describe(missing, unready, "unready"); {
	case s.Phase == v1.PodSucceeded && len(missing) == 0:
		c.Reason = reasonPodCompleted
	case s.Phase == v1.PodFailed:
		c.Reason = reasonPodFailed
	case message != "":
		c.Reason, c.Message = reasonContainersNotReady, message
	default:
		c.Status = v1.ConditionTrue
	}
	return c
}

// ready is True if containersReady and all readiness gates are.
func ready(pod *v1.Pod, containers v1.PodCondition, conditions []v1.PodCondition) v1.PodCondition {
	c := containers
	c.Type = v1.PodReady
	if containers.Status != v1.ConditionTrue {
		return c
	}
	var closed []string
	for _, gate := range pod.Spec.ReadinessGates {
		switch g := findCondition(conditions, gate.ConditionType); {
		case g == nil:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.",
				gate.ConditionType))
		case g.Status != v1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v",
				gate.ConditionType, g.Status))
		}
	}
	if len(closed) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, reasonReadinessGatesNotReady, strings.Join(closed, ", ")
	}
	return c
}

// describe returns kubelet's message for containers that have no status or not the
// wanted one, "" if there are none.
func describe(missing, lacking []string, word string) string {
	var parts []string
	if len(missing) > 0 {
		parts = append(parts, fmt.Sprintf("containers with unknown status: %s", missing))
	}
	if len(lacking) > 0 {
		parts = append(parts, fmt.Sprintf("containers with %s status: %s", word, lacking))
	}
	return strings.Join(parts, ", ")
}
