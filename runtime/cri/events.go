package cri

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// emitter emits events about a pod, or about the part of it that path names.
type emitter struct {
	pod  runtime.PodRef
	path string
	emit runtime.EventFunc
}

// container returns an emitter of events about one of the pod's containers. The
// spec may be nil.
func (e emitter) container(spec *v1.Pod, name string) emitter {
	e.path = "spec.containers{" + name + "}"
	if spec == nil {
		return e
	}
	switch _, kind := runtime.FindContainer(&spec.Spec, name); kind {
	case runtime.InitContainer:
		e.path = "spec.initContainers{" + name + "}"
	case runtime.EphemeralContainer:
		e.path = "spec.ephemeralContainers{" + name + "}"
	}
	return e
}

func (e emitter) event(eventType, reason, message string) {
	e.emit.Emit(runtime.Event{Pod: e.pod, FieldPath: e.path, Type: eventType, Reason: reason, Message: message})
}

func (e emitter) normal(reason, message string)  { e.event(v1.EventTypeNormal, reason, message) }
func (e emitter) warning(reason, message string) { e.event(v1.EventTypeWarning, reason, message) }

// failure emits a warning unless ctx has ended: a call that was cancelled, because
// the pod was removed for example, is no failure of the pod.
func (e emitter) failure(ctx context.Context, reason, message string) {
	if ctx.Err() == nil {
		e.warning(reason, message)
	}
}
