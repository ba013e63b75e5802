package images

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// event emits an event about the container, or about the pod if a volume needs the image.
func (a *attempt) event(eventType, reason, message string) {
	// A warning is also the error of the request, which fails the sync.
	e := runtime.Event{Pod: a.ref, Type: eventType, Reason: reason, Message: message,
		Logged: eventType == v1.EventTypeWarning}
	if a.Container != "" {
		e.FieldPath = runtime.FieldPath(a.Pod, a.Container)
	}
	a.p.opts.Event.Emit(e)
}

// failure emits a warning unless ctx has ended: a request that was cancelled is no failure of the pod.
func (a *attempt) failure(ctx context.Context, reason, message string) {
	if ctx.Err() == nil {
		a.event(v1.EventTypeWarning, reason, message)
	}
}

// decided records a decision.
func (a *attempt) decided(r runtime.Record) {
	r.Pod, r.Container, r.Stage = a.ref, a.Container, runtime.StageDecided
	a.p.opts.Record.Emit(r)
}

// done records the outcome of a pull that was decided at the time, unless ctx has ended: a pull that was cut off is
// begun again, or is not to be done any more.
func (a *attempt) done(ctx context.Context, r runtime.Record, began time.Time, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	r.Pod, r.Container, r.Stage, r.Duration = a.ref, a.Container, runtime.StageDone, time.Since(began)
	if err != nil {
		r.Error = err.Error()
	}
	a.p.opts.Record.Emit(r)
}
