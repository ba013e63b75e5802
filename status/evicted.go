package status

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The reason of a pod that is preempted, and the message of its condition. In kubelet they differ
// from the message of the pod (preemption.go: evictPodsToFreeRequests).
const (
	reasonPreempted    = "Preempting"
	conditionPreempted = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// Evicted returns a function that makes a status of the pod Failed for the reason, with the condition
// DisruptionTarget, by which controllers see that the node ended the pod (KEP-3329).
func Evicted(pod *v1.Pod, reason, message string) func(*v1.PodStatus) {
	return func(s *v1.PodStatus) {
		s.Phase, s.Reason, s.Message = v1.PodFailed, reason, message
		disrupted := v1.PodCondition{
			Type: v1.DisruptionTarget, ObservedGeneration: pod.Generation,
			Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: message,
		}
		if reason == reasonPreempted {
			disrupted.Message = conditionPreempted
		}
		if i := slices.IndexFunc(s.Conditions,
			func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget }); i >= 0 {
			disrupted.LastTransitionTime = s.Conditions[i].LastTransitionTime
			s.Conditions[i] = disrupted
			return
		}
		disrupted.LastTransitionTime = metav1.Now()
		s.Conditions = append(s.Conditions, disrupted)
	}
}
