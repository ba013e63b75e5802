package status

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxTerminationMessages is how many bytes of termination messages a pod's status
// may hold in all (API reference, terminationMessagePath).
const maxTerminationMessages = 12 << 10

// inherit takes over from an earlier status what does not change: the time of a
// transition while the condition's status is the same, the start time, and the
// generation where it is greater. now dates transitions that have no time yet.
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

// normalize brings the status into the form in which the API keeps it: times in
// full seconds, termination messages within their budget, lists in their order.
// It changes what s points to.
func normalize(pod *v1.Pod, s *v1.PodStatus) {
	budget := maxTerminationMessages
	if n := len(pod.Spec.InitContainers) + len(pod.Spec.Containers) + len(pod.Spec.EphemeralContainers); n > 0 {
		budget /= n
	}
	if s.StartTime != nil {
		*s.StartTime = apiTime(s.StartTime.Time)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.LastProbeTime, c.LastTransitionTime = apiTime(c.LastProbeTime.Time), apiTime(c.LastTransitionTime.Time)
	}
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			normalizeState(&list[i].State, budget)
			normalizeState(&list[i].LastTerminationState, budget)
		}
	}
	byName := func(a, b v1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortStableFunc(s.ContainerStatuses, byName)
	slices.SortStableFunc(s.EphemeralContainerStatuses, byName)
	position := make(map[string]int, len(pod.Spec.InitContainers))
	for i := range pod.Spec.InitContainers {
		position[pod.Spec.InitContainers[i].Name] = i - len(pod.Spec.InitContainers) // below 0: those that are not in the spec come last
	}
	slices.SortStableFunc(s.InitContainerStatuses, func(a, b v1.ContainerStatus) int {
		return cmp.Compare(position[a.Name], position[b.Name])
	})
}

func normalizeState(s *v1.ContainerState, budget int) {
	if s.Running != nil {
		s.Running.StartedAt = apiTime(s.Running.StartedAt.Time)
	}
	if t := s.Terminated; t != nil {
		t.StartedAt, t.FinishedAt = apiTime(t.StartedAt.Time), apiTime(t.FinishedAt.Time)
		if len(t.Message) > budget {
			t.Message = strings.ToValidUTF8(t.Message[:budget], "")
		}
	}
}

// apiTime is a time as the API has it, in full seconds.
func apiTime(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Truncate(time.Second))
}
