package status

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxTerminationMessages is the largest total size of the termination messages of a
// pod in bytes (API reference, terminationMessagePath).
const maxTerminationMessages = 12 << 10

// normalize converts the status to the form of the API: times in whole seconds,
// termination messages of limited size, lists in order. It changes s in place.
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
		position[pod.Spec.InitContainers[i].Name] = i - len(pod.Spec.InitContainers) // negative, so that those that are not in the spec come last
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

// apiTime truncates a time to seconds, as in the API.
func apiTime(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Truncate(time.Second))
}
