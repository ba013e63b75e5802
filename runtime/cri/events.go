package cri

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// emitter emits events about a pod, or about the part of it that path names.
type emitter struct {
	pod  runtime.PodRef
	path string
	emit runtime.EventFunc
	// record receives what is decided and done for the pod, or for the container.
	record runtime.RecordFunc
	name   string // of the container, "" for the pod
}

// container returns an emitter of events about one of the pod's containers. The
// spec may be nil.
func (e emitter) container(spec *v1.Pod, name string) emitter {
	e.name = name
	e.path = "spec.containers{" + name + "}"
	if spec == nil {
		return e
	}
	switch _, kind := podspec.FindContainer(&spec.Spec, name); kind {
	case podspec.InitContainer:
		e.path = "spec.initContainers{" + name + "}"
	case podspec.EphemeralContainer:
		e.path = "spec.ephemeralContainers{" + name + "}"
	}
	return e
}

func (e emitter) event(eventType, reason, message string) {
	e.emit.Emit(runtime.Event{Pod: e.pod, FieldPath: e.path, Type: eventType, Reason: reason, Message: message})
}

// logged emits a warning about something that is logged, or is the error of the sync.
func (e emitter) logged(reason, message string) {
	e.emit.Emit(runtime.Event{Pod: e.pod, FieldPath: e.path, Type: v1.EventTypeWarning, Reason: reason,
		Message: message, Logged: true})
}

func (e emitter) normal(reason, message string)  { e.event(v1.EventTypeNormal, reason, message) }
func (e emitter) warning(reason, message string) { e.event(v1.EventTypeWarning, reason, message) }

// failure emits a warning about the error of the sync, unless ctx has ended: a call that was cancelled, because
// the pod was removed for example, is no failure of the pod.
func (e emitter) failure(ctx context.Context, reason, message string) {
	if ctx.Err() == nil {
		e.logged(reason, message)
	}
}

// decided records a decision.
func (e emitter) decided(r runtime.Record) {
	r.Pod, r.Container, r.Stage = e.pod, e.name, runtime.StageDecided
	e.record.Emit(r)
}

// done records the outcome of an action that began at the time, unless ctx has ended: an
// action that was cut off is done again, or is not to be done any more.
func (e emitter) done(ctx context.Context, r runtime.Record, began time.Time, err error) {
	if e.record == nil || err != nil && ctx.Err() != nil {
		return
	}
	r.Pod, r.Container, r.Stage, r.Duration = e.pod, e.name, runtime.StageDone, time.Since(began)
	if err != nil && r.Error == "" {
		r.Error = reason(err)
	}
	e.record(r)
}
