package podworkers

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// perform makes the call. It logs a failure, unless the call was cancelled.
func (w *Workers) perform(ctx context.Context, c call) (returned, Call) {
	report := Call{Pod: c.ref, Phase: c.phase(), Type: c.typ, Received: c.received, Began: time.Now()}
	// Made only when there is something to say: it costs as much as a look at a pod
	// that is in order.
	log := func() logr.Logger {
		l := w.log.WithValues("pod", c.ref, "phase", c.phase())
		if c.kind == callSync {
			l = l.WithValues("type", c.typ)
		}
		return l
	}
	verbose := w.log.V(4).Enabled()
	if verbose {
		log().V(4).Info("Call begins")
	}
	w.hook("OnBegin", w.opts.OnBegin, c.ref)

	var r returned
	r.err = runtime.Recover(func() (err error) {
		r.Result, err = w.ask(ctx, c, &r.unread)
		return err
	})
	r.mark, r.jitter = w.cache.Now(), jitter()

	report.Ended, report.Err = time.Now(), r.err
	took := report.Ended.Sub(report.Began)
	var crash *runtime.PanicError
	switch {
	case r.err == nil:
		if verbose {
			log().V(4).Info("Call has returned", "took", took)
		}
	case errors.As(r.err, &crash):
		log().Error(r.err, "Pod worker recovered from a panic; the call will be made again", "stack", string(crash.Stack))
	case ctx.Err() != nil:
		log().V(2).Info("Call was cancelled", "cause", context.Cause(ctx).Error(), "took", took)
	default:
		log().Error(r.err, "Pod could not be brought up to date; it will be tried again")
	}
	w.hook("OnEnd", w.opts.OnEnd, c.ref)
	return r, report
}

// ask reads the pod's status and hands it to the syncer. unread is set if it did
// not get that far.
func (w *Workers) ask(ctx context.Context, c call, unread *bool) (Result, error) {
	*unread = true
	status, err := w.cache.Newer(ctx, c.ref, c.after)
	if err != nil {
		if ctx.Err() == nil {
			w.opts.Event.Emit(runtime.Event{Pod: c.ref, Type: v1.EventTypeWarning, Reason: "FailedSync", Message: "error determining status: " + err.Error()})
		}
		return Result{}, err // it names the pod
	}
	*unread = false
	switch c.kind {
	case callSync:
		return w.syncer.SyncPod(ctx, c.typ, c.pod, status)
	case callTerminating:
		if c.skip.applies(status) {
			return Result{}, nil
		}
		return Result{}, w.syncer.SyncTerminatingPod(ctx, c.pod, status, c.term)
	case callOrphan:
		return Result{}, w.syncer.SyncTerminatingOrphan(ctx, c.orphan, status, c.term.GracePeriod)
	default:
		return Result{}, w.syncer.SyncTerminatedPod(ctx, c.pod, status)
	}
}

// phase that the call belongs to.
func (c call) phase() Phase {
	switch c.kind {
	case callSync:
		return PhaseSync
	case callTerminated:
		return PhaseTerminated
	default:
		return PhaseTerminating
	}
}
