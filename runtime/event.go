package runtime

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Event is something about a pod that its user would want to see, as kubelet
// writes it in Event objects: a failed mount, a pulled image, a refusal.
type Event struct {
	Pod PodRef
	// FieldPath is the part of the pod that the event is about, as in
	// "spec.containers{web}"; empty if it is the whole pod.
	FieldPath string
	// Type is [v1.EventTypeNormal] or [v1.EventTypeWarning].
	Type string
	// Reason is kubelet's word in CamelCase, such as "FailedMount"; Message is for
	// people.
	Reason, Message string
	// Count is how often the event has happened, First and Last when it first and
	// last did. They are zero until [MergeEvents] has set them.
	Count       int
	First, Last time.Time
}

// EventFunc receives events. It must not block, and is safe for concurrent use.
// A nil EventFunc discards; call it through [EventFunc.Emit].
type EventFunc func(Event)

// Emit calls f with the event, unless f is nil.
func (f EventFunc) Emit(e Event) {
	if f != nil {
		f(e)
	}
}

// FieldPath returns where the container is in the pod's spec, for
// [Event.FieldPath]: "spec.containers{web}". A pod that is nil or has no such
// container counts as if it had it among the main ones.
func FieldPath(pod *v1.Pod, container string) string {
	list := "spec.containers"
	if pod != nil {
		switch _, kind := FindContainer(&pod.Spec, container); kind {
		case InitContainer:
			list = "spec.initContainers"
		case EphemeralContainer:
			list = "spec.ephemeralContainers"
		}
	}
	return list + "{" + container + "}"
}
