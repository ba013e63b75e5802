package podworkers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Errors of this package.
var (
	// ErrTerminating is the cause with which the context of a SyncPod ends when its
	// pod is to end.
	ErrTerminating = errors.New("the pod is to be terminated")
	// ErrShortened is the cause with which the context of a terminating call ends
	// when a shorter grace period is asked for.
	ErrShortened = errors.New("the grace period was shortened")
)

// Options are the settings of [Workers]; the zero value is good.
type Options struct {
	// ResyncInterval is how long a pod that is in order is left alone if nothing
	// happens to it; up to a half is added at random, and up to a 60th so that looks at
	// several pods fall together. Default: 1 minute, the syncFrequency of kubelet.
	// Negative: for ever.
	ResyncInterval time.Duration
	// BackoffBase is the time until a failed call is tried again. It doubles with
	// each failure in a row, up to BackoffPeriod, and up to a half is added at
	// random. Default: 1 second.
	BackoffBase time.Duration
	// BackoffPeriod is the longest back-off. Default: 10 seconds, which kubelet
	// waits after each failure.
	BackoffPeriod time.Duration
	// OnBegin is called before each call of the PodSyncer and the read of the pod's
	// status that precedes it. OnEnd is called when the call has returned and the
	// workers need no status that was read before. For one pod they are called
	// alternately. They must not block. nil: not called.
	OnBegin, OnEnd func(pod runtime.PodRef)
	// OnFinished is called when a pod has finished: its SyncTerminatedPod has succeeded,
	// and State shows it. It must not block. nil: not called.
	OnFinished func(pod runtime.PodRef)
	// Event receives "FailedSync" when the status of a pod cannot be read.
	Event runtime.EventFunc
	// Metrics receives measurements. nil: none.
	Metrics Metrics
	// Logger. The zero value discards.
	Logger logr.Logger
}

// Workers drives each pod through its life. It is safe for concurrent use; make
// it with [New].
type Workers struct {
	syncer PodSyncer
	cache  StatusCache
	opts   Options
	log    logr.Logger

	mu   sync.Mutex
	book *book
	// hands of the pods that have a call under way or a timer. A pod without one is
	// waiting for an update.
	hands map[types.UID]*hand
	ran   bool
	// ctx is that of Run; nil before it and after its end, when no call is begun.
	ctx context.Context
	// calls counts the goroutines of pods.
	calls sync.WaitGroup
}

// hand is what a pod has in the world of goroutines.
type hand struct {
	// cancel ends the call under way; nil if there is none.
	cancel context.CancelCauseFunc
	// timer fires when the pod's next call is due; nil before it was first needed.
	timer *time.Timer
}

// New returns workers that use the syncer, or an error that names all that is
// wrong.
func New(syncer PodSyncer, cache StatusCache, opts Options) (*Workers, error) {
	var errs []error
	if syncer == nil {
		errs = append(errs, errors.New("podworkers: a PodSyncer is required"))
	}
	if cache == nil {
		errs = append(errs, errors.New("podworkers: a StatusCache is required"))
	}
	p := policy{
		resyncInterval: orDefault(opts.ResyncInterval, time.Minute),
		base:           orDefault(opts.BackoffBase, time.Second),
		limit:          orDefault(opts.BackoffPeriod, 10*time.Second),
		freeChanges:    freeChanges,
	}
	if p.resyncInterval < 0 {
		p.resyncInterval = forever
	}
	if p.base < 0 || p.limit < p.base {
		errs = append(errs, fmt.Errorf("podworkers: BackoffBase %v and BackoffPeriod %v: the second must not be shorter than the first, nor one of them negative", p.base, p.limit))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Workers{syncer: syncer, cache: cache, opts: opts, log: opts.Logger, book: newBook(p), hands: map[types.UID]*hand{}}, nil
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// Run begins the work on the pods that were given before, and on those that
// come. It blocks until ctx ends, cancels all calls then, waits for them to
// return, and returns nil. Pods that run go on running. A second call returns
// [runtime.ErrAlreadyRunning].
func (w *Workers) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.ran {
		w.mu.Unlock()
		return fmt.Errorf("podworkers: %w", runtime.ErrAlreadyRunning)
	}
	w.ran, w.ctx = true, ctx
	for uid := range w.book.pods {
		w.schedule(uid)
	}
	w.mu.Unlock()

	<-ctx.Done()

	w.mu.Lock()
	w.ctx = nil
	for _, h := range w.hands {
		if h.timer != nil {
			h.timer.Stop()
		}
	}
	w.mu.Unlock()
	w.calls.Wait()
	return nil
}

// UpdatePod gives the worker of the pod news, and never blocks. Of the pod, the
// latest one counts; kills are merged and never taken back. An update that makes
// no sense is logged and left out. What is given before Run waits for it.
func (w *Workers) UpdatePod(u Update) {
	if err := u.validate(); err != nil {
		w.log.Error(err, "Update left out")
		if u.Kill != nil {
			w.callDone(u.ref(), appended(nil, u.Kill.Done))
		}
		return
	}
	ref := u.ref()
	w.log.V(4).Info("Pod updated", "pod", ref, "type", u.Type)

	w.mu.Lock()
	ev := updated{Update: u}
	if _, known := w.book.pods[ref.UID]; !known {
		// What was read before may show what an earlier incarnation has left.
		ev.mark = w.cache.Now()
		if u.Type == Create {
			// Others are about a pod that somebody has seen, maybe after the last list.
			ev.mark = w.cache.First(ref.UID)
		}
	}
	done := w.apply(ref.UID, ev)
	w.mu.Unlock()
	w.callDone(ref, done)
}

// SyncKnownPods tells the workers all that is desired, so that they forget the
// finished pods which are not, and terminate the others which are not. It returns
// the states of all pods that are known after that. A desired pod that is missing
// there is not known and has to be given with UpdatePod. Between two calls, every
// pod that is in desired must have been given; both are to be called from one
// goroutine.
func (w *Workers) SyncKnownPods(desired []*v1.Pod) map[types.UID]State {
	want := make(map[types.UID]bool, len(desired))
	for _, pod := range desired {
		want[pod.UID] = true
	}
	states := w.syncKnown(want)
	if w.opts.Metrics != nil {
		w.hook("Metrics.Counted", func(runtime.PodRef) { w.opts.Metrics.Counted(count(states)) }, runtime.PodRef{})
	}
	return states
}

func (w *Workers) syncKnown(want map[types.UID]bool) map[types.UID]State {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.book.synced = true
	for uid, m := range w.book.pods {
		if want[uid] && !m.undesired {
			continue // no news for it: an idle pod costs nothing, and its timer stays as it is
		}
		w.apply(uid, listed{desired: want[uid]}) // ends nothing, so nobody is to be told
	}
	states := make(map[types.UID]State, len(w.book.pods))
	for uid := range w.book.pods {
		states[uid] = w.book.state(uid)
	}
	return states
}

// State returns what is known of the pod.
func (w *Workers) State(uid types.UID) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.book.state(uid)
}

// TerminatingByFullName reports whether a static pod of the full name
// ("<name>_<namespace>") is being terminated, so that its mirror pod must not be
// deleted yet.
func (w *Workers) TerminatingByFullName(fullName string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.book.terminatingByFullName(fullName)
}

// apply hands an event to the book and sees to its effects, except for the
// functions that it returns, which are to be called without mu. mu is held.
func (w *Workers) apply(uid types.UID, ev any) []func() {
	fx, touched := w.book.apply(time.Now(), uid, ev)
	if h := w.hands[uid]; fx.cancel != nil && h != nil && h.cancel != nil {
		h.cancel(fx.cancel)
	}
	for _, t := range touched {
		w.schedule(t)
	}
	return fx.done
}

// schedule begins the pod's next call in a goroutine, or sets the timer for it.
// mu is held.
func (w *Workers) schedule(uid types.UID) {
	if w.ctx == nil || w.ctx.Err() != nil {
		return
	}
	h := w.hands[uid]
	if h != nil && h.cancel != nil {
		return // the goroutine of the call under way goes on from there
	}
	now := time.Now()
	if c, ok := w.book.take(now, uid); ok {
		ctx := w.begin(uid)
		w.calls.Go(func() { w.work(ctx, c) })
		return
	}
	at, ok := w.book.pods[uid].due()
	switch {
	case !ok:
		if h != nil && h.timer != nil {
			h.timer.Stop()
		}
		delete(w.hands, uid)
	case h == nil:
		h = &hand{}
		w.hands[uid] = h
		fallthrough
	case h.timer == nil:
		h.timer = time.AfterFunc(at.Sub(now), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.schedule(uid)
		})
	default:
		h.timer.Reset(at.Sub(now))
	}
}

// begin notes that a call of the pod is under way and returns its context. mu is
// held.
func (w *Workers) begin(uid types.UID) context.Context {
	h := w.hands[uid]
	if h == nil {
		h = &hand{}
		w.hands[uid] = h
	}
	if h.timer != nil {
		h.timer.Stop()
	}
	ctx, cancel := context.WithCancelCause(w.ctx)
	h.cancel = cancel
	return ctx
}

// work makes the pod's call and those that are due after it, and ends when none
// is.
func (w *Workers) work(ctx context.Context, c call) {
	for ok := true; ok; {
		outcome, report := w.perform(ctx, c)
		ctx, c, ok = w.finish(c, outcome, report)
	}
}

// finish enters the outcome of a call and begins the next one, if one is due.
func (w *Workers) finish(c call, r returned, report Call) (context.Context, call, bool) {
	uid := c.ref.UID
	w.mu.Lock()
	h := w.hands[uid]
	h.cancel(nil)
	fx, touched := w.book.apply(time.Now(), uid, r)
	var (
		next call
		more bool
		ctx  context.Context
	)
	if w.ctx != nil && w.ctx.Err() == nil {
		next, more = w.book.take(time.Now(), uid)
	}
	if more {
		ctx = w.begin(uid)
	} else {
		h.cancel = nil
	}
	for _, t := range touched {
		w.schedule(t)
	}
	w.mu.Unlock()
	w.callDone(c.ref, fx.done)
	if fx.finished {
		w.hook("OnFinished", w.opts.OnFinished, c.ref)
	}
	if w.opts.Metrics != nil {
		report.Backoff = fx.backoff
		w.hook("Metrics.Called", func(runtime.PodRef) { w.opts.Metrics.Called(report) }, c.ref)
	}
	return ctx, next, more
}

// callDone tells those who asked for the end of the pod that it has ended.
func (w *Workers) callDone(ref runtime.PodRef, done []func()) {
	for _, f := range done {
		w.hook("Done", func(runtime.PodRef) { f() }, ref)
	}
}

// hook calls a function of the embedder, unless it is nil. It logs a panic.
func (w *Workers) hook(name string, f func(runtime.PodRef), ref runtime.PodRef) {
	if f == nil {
		return
	}
	if err := runtime.Recover(func() error { f(ref); return nil }); err != nil {
		w.log.Error(err, "Callback has panicked", "callback", name, "pod", ref)
	}
}

// jitter is a random number from [0,1).
func jitter() float64 { return rand.Float64() }
