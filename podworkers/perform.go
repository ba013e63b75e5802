package podworkers

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// perform makes the call. It returns the outcome, and its measurement.
func (p *Pool) perform(ctx context.Context, c call) (returned, Call) {
	report := Call{Pod: c.ref, Phase: c.kind.phase(), Type: c.typ, Received: c.received, Began: time.Now()}
	if p.log.V(4).Enabled() {
		p.logger(c).V(4).Info("Call begins")
	}
	if p.opts.OnBegin != nil {
		p.callback("OnBegin", c.ref, func() { p.opts.OnBegin(c.ref) })
	}
	var r returned
	r.err = runtime.Recover(func() (err error) {
		r.Result, err = p.readAndSync(ctx, c, &r.unread)
		return err
	})
	r.mark, r.jitter = p.cache.Now(), rand.Float64()
	report.Ended, report.Err = time.Now(), r.err
	p.logReturned(ctx, c, r, report.Ended.Sub(report.Began))
	if p.opts.OnEnd != nil {
		p.callback("OnEnd", c.ref, func() { p.opts.OnEnd(c.ref) })
	}
	return r, report
}

// logger returns the logger for a call. Making it costs as much as the sync of a pod
// without changes, so it is made only if there is something to log.
func (p *Pool) logger(c call) logr.Logger {
	l := p.log.WithValues("pod", c.ref, "phase", c.kind.phase())
	if c.kind == callSync {
		l = l.WithValues("type", c.typ)
	}
	return l
}

// logReturned logs the outcome of a call. The end of a cancelled call is no error.
func (p *Pool) logReturned(ctx context.Context, c call, r returned, took time.Duration) {
	var crash *runtime.PanicError
	switch {
	case r.err == nil:
		if p.log.V(4).Enabled() {
			p.logger(c).V(4).Info("Call has returned", "took", took)
		}
	case c.kind == callSync && r.failure() != nil:
		p.logger(c).Info("Pod has failed for good; it will be terminated", "reason", r.failure().Reason,
			"message", r.failure().Message, "cause", withoutPod(r.err, c.ref).Error())
	case errors.As(r.err, &crash):
		p.logger(c).Error(withoutPod(r.err, c.ref), "Pod worker has recovered from a panic; the call will be repeated",
			"stack", string(crash.Stack))
	case ctx.Err() != nil:
		p.logger(c).V(2).Info("Call was cancelled", "cause", context.Cause(ctx).Error(), "took", took)
	default:
		p.logger(c).Error(withoutPod(r.err, c.ref), "Error syncing pod; the call will be repeated")
	}
}

// maxLogged is the limit for the text of an error in the log, in bytes. A pod can have thousands of
// volumes, each with an error, at each attempt.
const maxLogged = 16 << 10

// withoutPod returns the error for a log line that has the pod as a key. Errors name their
// pod, as do most of those that they wrap, so that the line would name it several times.
func withoutPod(err error, ref runtime.PodRef) error {
	name, text := "pod "+ref.String(), text.Clip(err.Error(), maxLogged)
	return loggedError{err, strings.NewReplacer("orphaned "+name+": ", "", name+": ", "",
		" of "+name, "").Replace(text)}
}

// loggedError is an error with another text.
type loggedError struct {
	error
	text string
}

func (e loggedError) Error() string { return e.text }
func (e loggedError) Unwrap() error { return e.error }

// readAndSync reads the pod's status and calls the syncer. unread is true if it did not
// call the syncer, because the status could not be read.
func (p *Pool) readAndSync(ctx context.Context, c call, unread *bool) (Result, error) {
	*unread = true
	status, err := p.cache.Newer(ctx, c.ref, c.after)
	if err != nil {
		if ctx.Err() == nil {
			p.warn(c.ref, "FailedSync", "error determining status: "+err.Error()) // kubelet's message
		}
		return Result{}, err // names the pod already
	}
	*unread = false
	switch c.kind {
	case callSync:
		return p.syncer.SyncPod(ctx, c.typ, c.pod, status)
	case callTerminating:
		if c.skip.applies(status) {
			return Result{}, nil
		}
		return Result{}, p.syncer.SyncTerminatingPod(ctx, c.pod, status, c.term)
	case callOrphan:
		return Result{}, p.syncer.SyncTerminatingOrphan(ctx, c.orphan, status, c.term.GracePeriod)
	default:
		return Result{}, p.syncer.SyncTerminatedPod(ctx, c.pod, status)
	}
}
