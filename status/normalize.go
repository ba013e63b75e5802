package status

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// maxTerminationMessages is the largest total size of the termination messages of a
// pod in bytes (API reference, terminationMessagePath).
const maxTerminationMessages = 12 << 10

// Limits of the other messages in a status, in bytes. The API has none, but an API server accepts no object
// of more than 1.5 MiB, and one error, which can name thousands of volumes, is the message of
// each container that waits for them.
const (
	// maxWaitingMessages is the limit for the messages of all containers that wait, and
	// minWaitingMessage what each container has in any case.
	maxWaitingMessages, minWaitingMessage = 64 << 10, 256
	// maxMessage is the limit for the message of the pod, and for that of each condition.
	maxMessage = 32 << 10
)

// normalize converts the status to the form of the API: times in whole seconds,
// messages of limited size, lists in order. It changes s in place.
func normalize(pod *v1.Pod, s *v1.PodStatus) {
	n := max(1, len(pod.Spec.InitContainers)+len(pod.Spec.Containers)+len(pod.Spec.EphemeralContainers))
	limits := messageLimits{terminated: maxTerminationMessages / n,
		waiting: max(maxWaitingMessages/n, minWaitingMessage)}
	s.Message = cut(s.Message, maxMessage)
	if s.StartTime != nil {
		*s.StartTime = apiTime(s.StartTime.Time)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.Message = cut(c.Message, maxMessage)
		c.LastProbeTime, c.LastTransitionTime = apiTime(c.LastProbeTime.Time), apiTime(c.LastTransitionTime.Time)
	}
	for c := range podspec.Statuses(s) {
		normalizeState(&c.State, limits)
		normalizeState(&c.LastTerminationState, limits)
	}
	byName := func(a, b v1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortStableFunc(s.ContainerStatuses, byName)
	slices.SortStableFunc(s.EphemeralContainerStatuses, byName)
	position := make(map[string]int, len(pod.Spec.InitContainers))
	for i := range pod.Spec.InitContainers {
		// negative, so that those that are not in the spec come last
		position[pod.Spec.InitContainers[i].Name] = i - len(pod.Spec.InitContainers)
	}
	slices.SortStableFunc(s.InitContainerStatuses, func(a, b v1.ContainerStatus) int {
		return cmp.Compare(position[a.Name], position[b.Name])
	})
}

// messageLimits are the limits for the messages of one container.
type messageLimits struct{ terminated, waiting int }

// cut returns a message of limited size.
func cut(message string, most int) string {
	if len(message) <= most {
		return message
	}
	return text.Clip(message, most-len("…"))
}

func normalizeState(s *v1.ContainerState, limits messageLimits) {
	if s.Waiting != nil {
		s.Waiting.Message = cut(s.Waiting.Message, limits.waiting)
	}
	if s.Running != nil {
		s.Running.StartedAt = apiTime(s.Running.StartedAt.Time)
	}
	if t := s.Terminated; t != nil {
		t.StartedAt, t.FinishedAt = apiTime(t.StartedAt.Time), apiTime(t.FinishedAt.Time)
		if len(t.Message) > limits.terminated {
			t.Message = strings.ToValidUTF8(t.Message[:limits.terminated], "")
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
