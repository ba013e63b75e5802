package podworkers

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// perform makes the call. It logs an error, unless the call was cancelled.
func (w *Workers) perform(ctx context.Context, c call) (returned, Call) {
	report := Call{Pod: c.ref, Phase: c.kind.phase(), Type: c.typ, Received: c.received, Began: time.Now()}
	// Only made if there is something to log: it costs as much as the sync of a pod
	// that is in order.
	log := func() logr.Logger {
		l := w.log.WithValues("pod", c.ref, "phase", c.kind.phase())
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
		r.Result, err = w.readAndSync(ctx, c, &r.unread)
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
	case c.kind == callSync && r.failure() != nil:
		log().Info("Pod has failed for good; it will be terminated", "reason", r.failure().Reason, "message", r.failure().Message, "cause", r.err.Error())
	case errors.As(r.err, &crash):
		log().Error(r.err, "Pod worker has recovered from a panic; the call will be repeated", "stack", string(crash.Stack))
	case ctx.Err() != nil:
		log().V(2).Info("Call was cancelled", "cause", context.Cause(ctx).Error(), "took", took)
	default:
		log().Error(r.err, "Error syncing pod; the call will be repeated")
	}
	w.hook("OnEnd", w.opts.OnEnd, c.ref)
	return r, report
}

// readAndSync reads the pod's status and calls the syncer. It sets unread if it did
// not call the syncer.
func (w *Workers) readAndSync(ctx context.Context, c call, unread *bool) (Result, error) {
	*unread = true
	status, err := w.cache.Newer(ctx, c.ref, c.after)
	if err != nil {
		if ctx.Err() == nil {
			w.warn(c.ref, "FailedSync", "error determining status: "+err.Error()) // kubelet's words
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
