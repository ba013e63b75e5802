package podworkers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
)

// perform makes the call. It logs a failure, unless the call was cancelled.
func (w *Workers) perform(ctx context.Context, c call) returned {
	begun := time.Now()
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
	if err := guard(func() error { w.onBegin(c.ref); return nil }); err != nil {
		log().Error(err, "OnBegin failed")
	}

	var r returned
	r.err = guard(func() (err error) {
		r.Result, err = w.ask(ctx, c, &r.unread)
		return err
	})
	r.mark, r.jitter = w.cache.Now(), jitter()

	now := time.Now()
	report := Call{Pod: c.ref, Phase: c.phase(), Type: c.typ, Duration: now.Sub(begun), Err: r.err}
	if !c.received.IsZero() {
		report.Latency = now.Sub(c.received)
	}
	var crash *panicError
	switch {
	case r.err == nil:
		if verbose {
			log().V(4).Info("Call has returned", "took", report.Duration)
		}
	case errors.As(r.err, &crash):
		log().Error(r.err, "Pod worker recovered from a panic; the call will be made again", "stack", string(crash.stack))
	case ctx.Err() != nil:
		log().V(2).Info("Call was cancelled", "cause", context.Cause(ctx).Error(), "took", report.Duration)
	default:
		log().Error(r.err, "Pod could not be brought up to date; it will be tried again")
	}
	if err := guard(func() error { w.onCall(report); return nil }); err != nil {
		log().Error(err, "OnCall failed")
	}
	return r
}

// ask reads the pod's status and hands it to the syncer. unread is set if it did
// not get that far.
func (w *Workers) ask(ctx context.Context, c call, unread *bool) (Result, error) {
	*unread = true
	status, err := w.cache.Newer(ctx, c.ref, c.after)
	if err != nil {
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

// panicError is a panic that was recovered.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// guard calls f and turns its panic into an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	return f()
}
