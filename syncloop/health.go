package syncloop

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// errNotChecked is the health of a runtime before its first check.
var errNotChecked = errors.New("the container runtime has not been checked yet")

// runtimeHealth holds the outcome of the last check of the runtime.
type runtimeHealth struct {
	mu  sync.Mutex
	err error
	// answer is the outcome of the last check that the runtime has answered, and answered is when
	// that was; zero before the first.
	answer   error
	answered time.Time
	// changed has room for one signal that the health is to be checked; a second one before
	// the first was received is dropped.
	changed flow.Signal
}

func newRuntimeHealth() *runtimeHealth {
	return &runtimeHealth{err: errNotChecked, changed: flow.NewSignal()}
}

func (h *runtimeHealth) get() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// within is like get, but while the runtime has answered within the duration, it returns the
// outcome of the last check that was answered.
func (h *runtimeHealth) within(patience time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.answered.IsZero() && time.Since(h.answered) < patience {
		return h.answer
	}
	return h.err
}

// set records an outcome and reports whether it differs from the last. answered means that the
// runtime has answered.
func (h *runtimeHealth) set(err error, answered bool) bool {
	h.mu.Lock()
	if answered {
		h.answer, h.answered = err, time.Now()
	}
	same := h.err == nil && err == nil || h.err != nil && err != nil && h.err.Error() == err.Error()
	h.err = err
	h.mu.Unlock()
	if same {
		return false
	}
	h.changed.Notify()
	return true
}

// watchRuntime checks the runtime until ctx ends: every CheckPeriod while the runtime is
// ready, and with the back-off of retries while it is not. It wakes up the loop while the
// PLEG is unhealthy, because the loop checks that only when it is awake.
func (l *Loop) watchRuntime(ctx context.Context) {
	failures, failed := 0, false
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		cctx, cancel := context.WithTimeout(ctx, l.opts.CheckTimeout)
		err := runtime.Recover(func() error { return l.deps.Runtime.Check(cctx) })
		answered := err == nil || cctx.Err() == nil && !errors.Is(err, runtime.ErrUnavailable)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if l.health.set(err, answered) {
			switch {
			case err == nil && !failed: // as it should be
				l.log.V(1).Info("Container runtime is ready")
			case err == nil:
				l.log.Info("Container runtime is ready again")
			case errors.Is(err, runtime.ErrNetworkNotReady):
				l.log.Error(err, "Container runtime has no pod network; only pods with the host's network are started")
			default:
				l.log.Error(err, "Container runtime is not ready; what runs is left alone until it is")
			}
		}
		failed = failed || err != nil
		if err != nil && !errors.Is(err, runtime.ErrNetworkNotReady) {
			l.deps.PLEG.Relist()
		}
		if l.deps.PLEG.Healthy() != nil {
			l.health.changed.Notify()
		}
		if err == nil {
			failures = 0
			t.Reset(l.opts.CheckPeriod)
			continue
		}
		failures++
		t.Reset(retries.After(failures))
	}
}
