package runtime

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Event reports something about a pod that matters to its user: a failed mount,
// a pulled image, a refused pod. It has what kubelet writes into Event objects. Few events
// are about the node.
type Event struct {
	// Pod is zero in an event about the node, such as FreeDiskSpaceFailed.
	Pod PodRef
	// FieldPath is the part of the pod that the event is about, such as
	// "spec.containers{web}". If empty, it is the whole pod.
	FieldPath string
	// Type is [v1.EventTypeNormal] or [v1.EventTypeWarning].
	Type string
	// Reason is kubelet's word in CamelCase, such as "FailedMount". Message is a
	// sentence for people.
	Reason, Message string
	// Annotations are those of the Event object, for programs, such as kubelet's starved_resource of an eviction. They
	// do not change.
	Annotations map[string]string
	// Logged means that the log has the same failure already, in the words of the part that emits the event or of the
	// pod workers, which log each failed sync. A log of events leaves such an event out.
	Logged bool `json:"-"`
	// Count is the number of times that the event has happened. First and Last are the
	// times of the first and of the last one. [MergeEvents] sets these fields; before,
	// they are zero.
	Count       int
	First, Last time.Time
}

// Eviction is why and how the node ends a pod.
type Eviction struct {
	// Reason and Message are those of the pod's status, and of the event about it.
	Reason, Message string
	// GracePeriod is in seconds. nil means the pod's own, and less than 1 counts as 1.
	GracePeriod *int64
	// Annotations are those of the event.
	Annotations map[string]string
}

// EventFunc receives events. It must be safe for concurrent use. An agent queues the events for the hooks of the
// embedder, and waits for none of them. So do the packages podconfig, podworkers and prober. A function that is given
// to another part directly must not block: the part calls it in the goroutine that does the work. A nil EventFunc
// discards events if it is called through [EventFunc.Emit].
type EventFunc func(Event)

// Emit calls f with the event. If f is nil, Emit does nothing.
func (f EventFunc) Emit(e Event) {
	if f != nil {
		f(e)
	}
}

// FieldPath returns the path of a container in the pod's spec, for [Event.FieldPath]:
// "spec.containers{web}". If the pod is nil or does not have the container, it is the
// path of a main container.
func FieldPath(pod *v1.Pod, container string) string {
	list := "spec.containers"
	if pod != nil {
		switch _, kind := podspec.FindContainer(&pod.Spec, container); kind {
		case podspec.InitContainer:
			list = "spec.initContainers"
		case podspec.EphemeralContainer:
			list = "spec.ephemeralContainers"
		}
	}
	return list + "{" + container + "}"
}
