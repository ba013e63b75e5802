package podworkers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
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

// Options are the settings of [Pool]; the zero value is valid.
type Options struct {
	// ResyncInterval is the time after which a pod is synced without any update. Up to a
	// half is added at random, and up to a 12th so that many pods are synced at the same
	// time. Default: 1 minute, the syncFrequency of kubelet. Negative: never.
	ResyncInterval time.Duration
	// BackoffBase is the delay after the first failed call. It doubles with each
	// failure in a row, up to BackoffPeriod, and up to a half is added at random.
	// Default: 1 second.
	BackoffBase time.Duration
	// BackoffPeriod is the longest delay. Default: 10 seconds, kubelet's delay after
	// each failure.
	BackoffPeriod time.Duration
	// OnBegin is called before each call of the Syncer, and before the read of the
	// pod's status that precedes the call. OnEnd is called after the call has returned;
	// the mark for the next read is drawn by then. For one pod they are called
	// alternately. They must not block. nil: not called.
	OnBegin, OnEnd func(pod runtime.PodRef)
	// OnFinished is called when a pod has finished, after State has changed. It must not
	// block. nil: not called.
	OnFinished func(pod runtime.PodRef)
	// Event receives the reason and message of each pod that has failed for good, and
	// "FailedSync" when the status of a pod cannot be read. nil: events are discarded.
	Event runtime.EventFunc
	// Record receives why pods end and fail, that they wait for others, and calls that fail.
	// It must not block. nil: records are discarded.
	Record runtime.RecordFunc
	// Metrics receives measurements. nil: none.
	Metrics Metrics
	// Logger. The zero value discards.
	Logger logr.Logger
}

// Pool is the default [Workers]. Make one with [New].
type Pool struct {
	syncer Syncer
	cache  StatusCache
	opts   Options
	log    logr.Logger

	// calls has the goroutines with calls under way; see work.
	calls sync.WaitGroup
	// effects has what follows from transitions: records, in the order of the transitions.
	effects flow.Queue

	mu       sync.Mutex // guards the following
	machines *machines
	// workers has the pods with a call under way or a timer. Any other pod waits for an
	// update.
	workers map[types.UID]*worker
	ran     bool
	// ctx is the context of Run; nil before Run, and when no call is begun any more.
	ctx context.Context
}

// worker is a pod with a call under way or a timer. The goroutine that makes the call
// also makes the next one if that is due at once. Otherwise the timer starts another.
type worker struct {
	// cancel cancels the call under way; nil if there is none.
	cancel context.CancelCauseFunc
	// timer fires when the pod's next call is due. It is nil until it is first needed, and
	// stopped during calls.
	timer *time.Timer
}

// New returns a Pool that calls the syncer with statuses from the cache. The error names
// everything that is missing or invalid.
func New(syncer Syncer, cache StatusCache, opts Options) (*Pool, error) {
	var errs []error
	if syncer == nil {
		errs = append(errs, errors.New("podworkers: a Syncer is required"))
	}
	if cache == nil {
		errs = append(errs, errors.New("podworkers: a StatusCache is required"))
	}
	p := policy{
		resyncInterval: orDefault(opts.ResyncInterval, time.Minute),
		base:           orDefault(opts.BackoffBase, time.Second),
		limit:          orDefault(opts.BackoffPeriod, 10*time.Second),
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
	if opts.Metrics != nil {
		opts.Metrics = newGuarded(opts.Metrics, opts.Logger)
	}
	return &Pool{syncer: syncer, cache: cache, opts: opts, log: opts.Logger, machines: newMachines(p), workers: map[types.UID]*worker{}}, nil
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// Run implements [Workers].
func (w *Pool) Run(ctx context.Context) error {
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
	for _, wk := range w.workers {
		if wk.timer != nil {
			wk.timer.Stop()
		}
	}
	w.mu.Unlock()
	flow.Wait(&w.calls, flow.Late, w.logLate)
	return nil
}

// logLate logs the pods that have a call under way after Run should have ended.
func (w *Pool) logLate() {
	w.mu.Lock()
	var late []machine
	for uid, wk := range w.workers {
		if wk.cancel != nil {
			late = append(late, w.machines.pods[uid])
		}
	}
	w.mu.Unlock()
	for _, m := range late {
		w.log.Error(nil, "The pod workers cannot stop: a call has not returned although its context has ended", "pod", m.ref, "phase", m.phase)
	}
}

// UpdatePod implements [Workers]. It logs an invalid update.
func (w *Pool) UpdatePod(u Update) {
	if err := u.validate(); err != nil {
		w.log.Error(err, "Ignoring an invalid update")
		if u.Kill != nil {
			w.callDone(u.ref(), appended(nil, u.Kill.Done))
		}
		return
	}
	ref := u.ref()
	w.log.V(4).Info("Pod updated", "pod", ref, "type", u.Type)

	ev := updated{Update: u}
	if w.opts.Record != nil {
		ev = withReason(u)
	}
	w.mu.Lock()
	for w.machines.begins(ref.UID, u) {
		// A status that was read before the pod was forgotten may be that of an earlier incarnation,
		// so the mark is drawn again if a pod was forgotten meanwhile.
		forgotten := w.machines.forgotten
		w.mu.Unlock()
		ev.mark = w.firstMark(ref.UID, u.Type)
		w.mu.Lock()
		if forgotten == w.machines.forgotten {
			break
		}
	}
	syncing := (u.Type == Change || u.Type == Sync) && w.machines.pods[ref.UID].call.kind == callSync
	done := w.apply(ref.UID, ev)
	var before runtime.PodRef
	waits := false
	if u.Type == Create {
		before, waits = w.machines.predecessor(ref.UID)
	}
	w.mu.Unlock()
	w.effects.Run()
	w.callDone(ref, done)
	if syncing {
		w.callback("Updated", ref, func() { w.syncer.Updated(u.Pod) })
	}
	if waits {
		w.emit(ref, v1.EventTypeNormal, "WaitingForPredecessor", fmt.Sprintf("Pod starts when pod %s, which has the same name, has ended", before))
	}
}

// firstMark returns the mark for the first read of a pod that begins with an update of the type.
func (w *Pool) firstMark(uid types.UID, typ UpdateType) runtime.Mark {
	if typ == Create {
		return w.cache.First(uid) // saves a read of a new pod
	}
	return w.cache.Now() // the pod is in the runtime, maybe since the last list
}

// SyncKnownPods implements [Workers].
func (w *Pool) SyncKnownPods(desired []*v1.Pod) map[types.UID]State {
	uids := make(map[types.UID]bool, len(desired))
	for _, pod := range desired {
		uids[pod.UID] = true
	}
	states := w.syncKnown(uids)
	w.effects.Run()
	if w.opts.Metrics != nil {
		w.opts.Metrics.Counted(count(states))
	}
	return states
}

func (w *Pool) syncKnown(desired map[types.UID]bool) map[types.UID]State {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machines.synced = true
	for uid, m := range w.machines.pods {
		if desired[uid] && !m.undesired {
			continue // nothing changes for the pod, and its timer stays as it is
		}
		w.apply(uid, compared{desired: desired[uid]}) // without Done: the event terminates no pod yet
	}
	states := make(map[types.UID]State, len(w.machines.pods))
	for uid := range w.machines.pods {
		states[uid] = w.machines.state(uid)
	}
	return states
}

// Drain implements [Workers].
func (w *Pool) Drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machines.drained = true
}

// State implements [Workers].
func (w *Pool) State(uid types.UID) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machines.state(uid)
}

// TerminatingByFullName implements [Workers].
func (w *Pool) TerminatingByFullName(fullName string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machines.terminatingByFullName(fullName)
}

// Predecessor implements [Workers].
func (w *Pool) Predecessor(uid types.UID) (runtime.PodRef, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machines.predecessor(uid)
}

// apply applies an event to the pod's machine, cancels the call under way if the event
// requires that, and schedules the next calls. It returns the Done functions, which the
// caller calls without mu. mu is held.
func (w *Pool) apply(uid types.UID, ev any) []func() {
	fx, touched := w.transit(uid, ev, 0)
	if wk := w.workers[uid]; fx.cancel != nil && wk != nil && wk.cancel != nil {
		wk.cancel(fx.cancel)
	}
	for _, t := range touched {
		w.schedule(t)
	}
	return fx.done
}

// transit applies an event to the pod's machine and adds the records of the transition to effects. took is how
// long a call took that has returned. mu is held.
func (w *Pool) transit(uid types.UID, ev any, took time.Duration) (effects, []types.UID) {
	now := time.Now()
	before := w.machines.pods[uid]
	fx, touched := w.machines.apply(now, uid, ev)
	if w.opts.Record != nil {
		stopping := w.ctx == nil || w.ctx.Err() != nil
		for _, r := range recordsOf(before, w.machines.pods[uid], ev, fx, now) {
			if r.Kind == runtime.KindSync {
				if stopping {
					continue // the call was cut off
				}
				r.Duration = took
			}
			w.effects.Add(func() { w.callback("Record", r.Pod, func() { w.opts.Record(r) }) })
		}
	}
	return fx, touched
}

// schedule begins the pod's next call in a goroutine, or sets the timer for it.
// mu is held.
func (w *Pool) schedule(uid types.UID) {
	if w.ctx == nil || w.ctx.Err() != nil {
		return
	}
	wk := w.workers[uid]
	if wk != nil && wk.cancel != nil {
		return // the goroutine of the call under way begins the next one
	}
	now := time.Now()
	if c, ok := w.machines.take(now, uid); ok {
		ctx := w.begin(&c)
		w.calls.Go(func() { w.work(ctx, c) })
		return
	}
	at, ok := w.machines.pods[uid].due()
	if !ok { // the pod waits for an update, or is not known any more
		if wk != nil && wk.timer != nil {
			wk.timer.Stop()
		}
		delete(w.workers, uid)
		return
	}
	wk = w.worker(uid)
	if wk.timer != nil {
		wk.timer.Reset(at.Sub(now))
		return
	}
	wk.timer = time.AfterFunc(at.Sub(now), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.schedule(uid)
	})
}

// worker returns the worker of the pod, a new one if it has none. mu is held.
func (w *Pool) worker(uid types.UID) *worker {
	wk := w.workers[uid]
	if wk == nil {
		wk = &worker{}
		w.workers[uid] = wk
	}
	return wk
}

// begin records that a call of the pod is under way, and returns the context of the
// call. mu is held.
func (w *Pool) begin(c *call) context.Context {
	wk := w.worker(c.ref.UID)
	if wk.timer != nil {
		wk.timer.Stop()
	}
	ctx, cancel := context.WithCancelCause(w.ctx)
	wk.cancel = cancel
	return ctx
}

// work makes a call, and further calls of the pod until none is due.
func (w *Pool) work(ctx context.Context, c call) {
	for ok := true; ok; {
		outcome, report := w.perform(ctx, c)
		ctx, c, ok = w.finish(c, outcome, report)
	}
}

// finish applies the outcome of a call and begins the next one. ok is false if none is
// due.
func (w *Pool) finish(c call, r returned, report Call) (ctx context.Context, next call, ok bool) {
	uid := c.ref.UID
	w.mu.Lock()
	wk := w.workers[uid]
	wk.cancel(nil) // releases the context
	fx, touched := w.transit(uid, r, report.Ended.Sub(report.Began))
	if w.ctx != nil && w.ctx.Err() == nil {
		next, ok = w.machines.take(time.Now(), uid)
	}
	if ok {
		ctx = w.begin(&next)
	} else {
		wk.cancel = nil
	}
	for _, t := range touched {
		w.schedule(t)
	}
	w.mu.Unlock()
	w.effects.Run()
	w.callDone(c.ref, fx.done)
	if fx.failure != nil {
		w.emit(c.ref, v1.EventTypeWarning, fx.failure.Reason, fx.failure.Message)
	}
	if fx.finished && w.opts.OnFinished != nil {
		w.callback("OnFinished", c.ref, func() { w.opts.OnFinished(c.ref) })
	}
	if w.opts.Metrics != nil {
		report.Failure, report.Backoff = fx.failure, fx.backoff
		w.opts.Metrics.Called(report)
	}
	return ctx, next, ok
}

// callDone calls the Done functions of kills.
func (w *Pool) callDone(ref runtime.PodRef, done []func()) {
	for _, f := range done {
		w.callback("Done", ref, f)
	}
}

// emit emits an event about the pod.
func (w *Pool) emit(pod runtime.PodRef, eventType, reason, message string) {
	w.callback("Event", pod, func() {
		w.opts.Event.Emit(runtime.Event{Pod: pod, Type: eventType, Reason: reason, Message: message})
	})
}

// callback calls a function of the embedder. It logs a panic.
func (w *Pool) callback(name string, pod runtime.PodRef, f func()) {
	if err := runtime.Recover(func() error { f(); return nil }); err != nil {
		w.log.Error(err, "Callback has panicked", "callback", name, "pod", pod)
	}
}
