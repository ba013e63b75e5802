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
	// ErrTerminating is the cause with which the context of a SyncPod ends when its pod
	// is to end.
	ErrTerminating = errors.New("the pod is to be terminated")
	// ErrShortened is the cause with which the context of a terminating call ends when
	// a shorter grace period is requested.
	ErrShortened = errors.New("the grace period was shortened")
)

// Options are the settings of [Workers]; the zero value is valid.
type Options struct {
	// ResyncInterval is the time after which a pod is synced without any event. Up to a
	// half is added at random, and up to a 60th so that the syncs of several pods fall
	// together. Default: 1 minute, the syncFrequency of kubelet. Negative: never.
	ResyncInterval time.Duration
	// BackoffBase is the delay after the first failed call. It doubles with each
	// failure in a row, up to BackoffPeriod, and up to a half is added at random.
	// Default: 1 second.
	BackoffBase time.Duration
	// BackoffPeriod is the longest delay. Default: 10 seconds, kubelet's delay after
	// each failure.
	BackoffPeriod time.Duration
	// OnBegin is called before each call of the PodSyncer and the read of the pod's
	// status that precedes it. OnEnd is called when the call has returned and the
	// workers need no status that was read before. For one pod they are called
	// alternately. They must not block. nil: not called.
	OnBegin, OnEnd func(pod runtime.PodRef)
	// OnFinished is called when a pod has finished: its SyncTerminatedPod has succeeded,
	// and State shows it. It must not block. nil: not called.
	OnFinished func(pod runtime.PodRef)
	// Event receives the reason and message with which a SyncPod fails its pod for
	// good, and "FailedSync" when the status of a pod cannot be read.
	Event runtime.EventFunc
	// Metrics receives measurements. nil: none.
	Metrics Metrics
	// Logger. The zero value discards.
	Logger logr.Logger
}

// Workers is the default [PodWorkers]. Make one with [New].
type Workers struct {
	syncer PodSyncer
	cache  StatusCache
	opts   Options
	log    logr.Logger

	mu       sync.Mutex
	machines *machines
	// workers has the pods with a call under way or a timer. Any other pod waits for an
	// update.
	workers map[types.UID]*worker
	ran     bool
	// ctx is that of Run; nil before Run and after its end, when no call is begun.
	ctx context.Context
	// calls counts the goroutines of workers.
	calls sync.WaitGroup
}

// worker makes the calls for one pod.
type worker struct {
	// cancel cancels the call under way; nil if there is none.
	cancel context.CancelCauseFunc
	// timer fires when the pod's next call is due; nil before it was first needed.
	timer *time.Timer
}

// New returns Workers that call the syncer with statuses from the cache. Its error
// joins everything that is wrong with the arguments.
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
		errs = append(errs, fmt.Errorf("podworkers: BackoffBase %v and BackoffPeriod %v: the period must not be shorter than the base, and neither may be negative", p.base, p.limit))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Workers{syncer: syncer, cache: cache, opts: opts, log: opts.Logger, machines: newMachines(p), workers: map[types.UID]*worker{}}, nil
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// Run implements [PodWorkers].
func (w *Workers) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.ran {
		w.mu.Unlock()
		return fmt.Errorf("podworkers: %w", runtime.ErrAlreadyRunning)
	}
	w.ran, w.ctx = true, ctx
	for uid := range w.machines.pods {
		w.schedule(uid)
	}
	w.mu.Unlock()

	<-ctx.Done()

	w.mu.Lock()
	w.ctx = nil
	for _, h := range w.workers {
		if h.timer != nil {
			h.timer.Stop()
		}
	}
	w.mu.Unlock()
	w.calls.Wait()
	return nil
}

// UpdatePod implements [PodWorkers]. It logs an invalid update.
func (w *Workers) UpdatePod(u Update) {
	if err := u.validate(); err != nil {
		w.log.Error(err, "Ignoring an invalid update")
		if u.Kill != nil {
			w.callDone(u.ref(), appended(nil, u.Kill.Done))
		}
		return
	}
	ref := u.ref()
	w.log.V(4).Info("Pod updated", "pod", ref, "type", u.Type)

	w.mu.Lock()
	ev := updated{Update: u}
	if _, known := w.machines.pods[ref.UID]; !known {
		// An older status may show what an earlier incarnation has left.
		ev.mark = w.cache.Now()
		if u.Type == Create {
			// For the other types the caller has seen the pod, maybe after the last list.
			ev.mark = w.cache.First(ref.UID)
		}
	}
	done := w.apply(ref.UID, ev)
	w.mu.Unlock()
	w.callDone(ref, done)
}

// SyncKnownPods implements [PodWorkers].
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
	w.machines.synced = true
	for uid, m := range w.machines.pods {
		if want[uid] && !m.undesired {
			continue // nothing changes for it, and its timer stays as it is
		}
		w.apply(uid, listed{desired: want[uid]}) // calls no Done: nothing has been terminated by it
	}
	states := make(map[types.UID]State, len(w.machines.pods))
	for uid := range w.machines.pods {
		states[uid] = w.machines.state(uid)
	}
	return states
}

// State implements [PodWorkers].
func (w *Workers) State(uid types.UID) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machines.state(uid)
}

// TerminatingByFullName implements [FullNames].
func (w *Workers) TerminatingByFullName(fullName string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machines.terminatingByFullName(fullName)
}

// apply applies an event to the pod's machine, and its effects except for the Done
// functions. It returns those; the caller calls them without mu. mu is held.
func (w *Workers) apply(uid types.UID, ev any) []func() {
	fx, touched := w.machines.apply(time.Now(), uid, ev)
	if h := w.workers[uid]; fx.cancel != nil && h != nil && h.cancel != nil {
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
	h := w.workers[uid]
	if h != nil && h.cancel != nil {
		return // the goroutine of the call under way begins the next one
	}
	now := time.Now()
	if c, ok := w.machines.take(now, uid); ok {
		ctx := w.begin(uid)
		w.calls.Go(func() { w.work(ctx, c) })
		return
	}
	at, ok := w.machines.pods[uid].due()
	switch {
	case !ok:
		if h != nil && h.timer != nil {
			h.timer.Stop()
		}
		delete(w.workers, uid)
	case h == nil:
		h = &worker{}
		w.workers[uid] = h
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

// begin records that a call of the pod is under way, and returns the context of the
// call. mu is held.
func (w *Workers) begin(uid types.UID) context.Context {
	h := w.workers[uid]
	if h == nil {
		h = &worker{}
		w.workers[uid] = h
	}
	if h.timer != nil {
		h.timer.Stop()
	}
	ctx, cancel := context.WithCancelCause(w.ctx)
	h.cancel = cancel
	return ctx
}

// work makes a call, and further calls of the pod until none is due.
func (w *Workers) work(ctx context.Context, c call) {
	for ok := true; ok; {
		outcome, report := w.perform(ctx, c)
		ctx, c, ok = w.finish(c, outcome, report)
	}
}

// finish applies the outcome of a call, and begins the next one if one is due.
func (w *Workers) finish(c call, r returned, report Call) (context.Context, call, bool) {
	uid := c.ref.UID
	w.mu.Lock()
	h := w.workers[uid]
	h.cancel(nil)
	fx, touched := w.machines.apply(time.Now(), uid, r)
	var (
		next call
		more bool
		ctx  context.Context
	)
	if w.ctx != nil && w.ctx.Err() == nil {
		next, more = w.machines.take(time.Now(), uid)
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
	if fx.failure != nil {
		w.warn(c.ref, fx.failure.Reason, fx.failure.Message)
	}
	if fx.finished {
		w.hook("OnFinished", w.opts.OnFinished, c.ref)
	}
	if w.opts.Metrics != nil {
		report.Failure, report.Backoff = fx.failure, fx.backoff
		w.hook("Metrics.Called", func(runtime.PodRef) { w.opts.Metrics.Called(report) }, c.ref)
	}
	return ctx, next, more
}

// callDone calls the Done functions of kills.
func (w *Workers) callDone(ref runtime.PodRef, done []func()) {
	for _, f := range done {
		w.hook("Done", func(runtime.PodRef) { f() }, ref)
	}
}

// warn emits an event about the pod.
func (w *Workers) warn(pod runtime.PodRef, reason, message string) {
	w.hook("Event", func(runtime.PodRef) {
		w.opts.Event.Emit(runtime.Event{Pod: pod, Type: v1.EventTypeWarning, Reason: reason, Message: message})
	}, pod)
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

// jitter returns a random number from [0,1).
func jitter() float64 { return rand.Float64() }
