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
	// ResyncInterval is the time after which a pod is synced without any update. It doubles with each sync in a row
	// that finds the pod at rest, up to three times, see [Result].AtRest. Up to a half is added at random, and up to a
	// 12th so that many pods are synced at the same time. Default: 1 minute, the syncFrequency of kubelet. Negative:
	// never.
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
	// Observer receives the reason and message of each pod that has failed for good, and the event "FailedSync" when
	// the status of a pod cannot be read; records of why pods end and fail, that they wait for others, and of calls
	// that fail; and the measurements [Call] and [Counts]. If it is NonBlocking, a call of the Syncer begins after the
	// records of what it follows from.
	runtime.Observer
}

// Pool is the default [Workers]. Make one with [New].
type Pool struct {
	syncer Syncer
	cache  runtime.StatusCache
	opts   Options
	log    logr.Logger
	// waitForObserver is called when Run ends.
	waitForObserver func()

	// calls has the goroutines with calls under way; see work.
	calls sync.WaitGroup
	// afterUnlock has what follows from transitions, in their order: records, and the beginnings of calls.
	afterUnlock flow.Queue

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
func New(syncer Syncer, cache runtime.StatusCache, opts Options) (*Pool, error) {
	observer, wait := opts.Queued()
	opts.Observer = observer
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
		errs = append(errs, fmt.Errorf("podworkers: BackoffBase %v and BackoffPeriod %v: the period must not be "+
			"shorter than the base, and neither may be negative", p.base, p.limit))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	pool := &Pool{
		syncer: syncer, cache: cache, opts: opts, log: opts.Logger,
		waitForObserver: wait,
		machines:        newMachines(p), workers: map[types.UID]*worker{},
	}
	return pool, nil
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// Run implements [Workers].
func (p *Pool) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.ran {
		p.mu.Unlock()
		return fmt.Errorf("podworkers: %w", runtime.ErrAlreadyRunning)
	}
	p.ran, p.ctx = true, ctx
	for uid := range p.machines.pods {
		p.schedule(uid)
	}
	p.mu.Unlock()
	p.afterUnlock.Run()

	<-ctx.Done()

	p.mu.Lock()
	p.ctx = nil
	for _, wk := range p.workers {
		if wk.timer != nil {
			wk.timer.Stop()
		}
	}
	p.mu.Unlock()
	flow.Wait(&p.calls, flow.Late, p.logLate)
	p.waitForObserver()
	return nil
}

// logLate logs the pods that have a call under way after Run should have ended.
func (p *Pool) logLate() {
	p.mu.Lock()
	var late []machine
	for uid, wk := range p.workers {
		if wk.cancel != nil {
			late = append(late, p.machines.pods[uid])
		}
	}
	p.mu.Unlock()
	for _, m := range late {
		p.log.Error(nil, "The pod workers cannot stop: a call has not returned although its context has ended",
			"pod", m.ref, "phase", m.phase)
	}
}

// UpdatePod implements [Workers]. It logs an invalid update.
func (p *Pool) UpdatePod(u Update) {
	if err := u.validate(); err != nil {
		p.log.Error(err, "Ignoring an invalid update")
		if u.Kill != nil {
			p.callDone(u.ref(), appended(nil, u.Kill.Done))
		}
		return
	}
	ref := u.ref()
	p.log.V(4).Info("Pod updated", "pod", ref, "type", u.Type)

	ev := updated{Update: u}
	if p.opts.Record != nil {
		ev = withReason(u)
	}
	p.mu.Lock()
	for p.machines.begins(ref.UID, u) {
		// A status that was read before the pod was forgotten may be that of an earlier incarnation,
		// so the mark is drawn again if a pod was forgotten meanwhile.
		forgotten := p.machines.forgotten
		p.mu.Unlock()
		ev.mark = p.firstMark(ref.UID, u.Type)
		p.mu.Lock()
		if forgotten == p.machines.forgotten {
			break
		}
	}
	syncing := (u.Type == Change || u.Type == Sync) && p.machines.pods[ref.UID].call.kind == callSync
	done := p.apply(ref.UID, ev)
	if m := p.machines.pods[ref.UID]; syncing && !m.end.requested() {
		// In the order of the updates, and with the spec of the machine, which may be later than that of the update.
		p.afterUnlock.Add(func() { p.callback("Updated", ref, func() { p.syncer.Updated(m.pod) }) })
	}
	var before runtime.PodRef
	waits := false
	if u.Type == Create {
		before, waits = p.machines.predecessor(ref.UID)
	}
	p.mu.Unlock()
	p.afterUnlock.Run()
	p.callDone(ref, done)
	if waits {
		p.opts.Event.Emit(runtime.Event{Pod: ref, Type: v1.EventTypeNormal, Reason: "WaitingForPredecessor",
			Message: fmt.Sprintf("Pod starts when pod %s, which has the same name, has ended", before)})
	}
}

// firstMark returns the mark for the first read of a pod that begins with an update of the type.
func (p *Pool) firstMark(uid types.UID, typ UpdateType) runtime.Mark {
	if typ == Create {
		return p.cache.First(uid) // saves a read of a new pod
	}
	return p.cache.Now() // the pod is in the runtime, maybe since the last list
}

// SyncKnownPods implements [Workers].
func (p *Pool) SyncKnownPods(desired []*v1.Pod) map[types.UID]State {
	uids := make(map[types.UID]bool, len(desired))
	for _, pod := range desired {
		uids[pod.UID] = true
	}
	states := p.syncKnown(uids)
	p.afterUnlock.Run()
	if p.opts.Measure != nil {
		p.opts.Measure.Emit(count(states))
	}
	return states
}

func (p *Pool) syncKnown(desired map[types.UID]bool) map[types.UID]State {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.machines.synced = true
	for uid, m := range p.machines.pods {
		if desired[uid] && !m.undesired {
			continue // nothing changes for the pod, and its timer stays as it is
		}
		p.apply(uid, compared{desired: desired[uid]}) // without Done: the event terminates no pod yet
	}
	states := make(map[types.UID]State, len(p.machines.pods))
	for uid := range p.machines.pods {
		states[uid] = p.machines.state(uid)
	}
	return states
}

// Drain implements [Workers].
func (p *Pool) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.machines.drained = true
}

// State implements [Workers].
func (p *Pool) State(uid types.UID) State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.machines.state(uid)
}

// TerminatingByFullName implements [Workers].
func (p *Pool) TerminatingByFullName(fullName string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.machines.terminatingByFullName(fullName)
}

// Predecessor implements [Workers].
func (p *Pool) Predecessor(uid types.UID) (runtime.PodRef, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.machines.predecessor(uid)
}

// apply applies an event to the pod's machine, cancels the call under way if the event
// requires that, and schedules the next calls. It returns the Done functions, which the
// caller calls without mu. mu is held.
func (p *Pool) apply(uid types.UID, ev any) []func() {
	fx, touched := p.transit(uid, ev, 0)
	if wk := p.workers[uid]; fx.cancel != nil && wk != nil && wk.cancel != nil {
		wk.cancel(fx.cancel)
	}
	for _, t := range touched {
		p.schedule(t)
	}
	return fx.done
}

// transit applies an event to the pod's machine and adds the records of the transition to afterUnlock. took is how
// long a call took that has returned. mu is held.
func (p *Pool) transit(uid types.UID, ev any, took time.Duration) (effects, []types.UID) {
	now := time.Now()
	before := p.machines.pods[uid]
	fx, touched := p.machines.apply(now, uid, ev)
	if p.opts.Record != nil {
		stopping := p.ctx == nil || p.ctx.Err() != nil
		for _, r := range recordsOf(before, p.machines.pods[uid], ev, fx, now) {
			if r.Kind == runtime.KindSync {
				if stopping {
					continue // the call was cut off
				}
				r.Duration = took
			}
			p.afterUnlock.Add(func() { p.opts.Record(r) })
		}
	}
	return fx, touched
}

// schedule adds the beginning of the pod's next call, in a goroutine, to afterUnlock, or sets the timer
// for it. mu is held.
func (p *Pool) schedule(uid types.UID) {
	if p.ctx == nil || p.ctx.Err() != nil {
		return
	}
	wk := p.workers[uid]
	if wk != nil && wk.cancel != nil {
		return // the goroutine of the call under way begins the next one
	}
	now := time.Now()
	if c, ok := p.machines.take(now, uid); ok {
		ctx := p.begin(&c)
		p.calls.Add(1)
		p.afterUnlock.Add(func() { // after the records of what it follows from
			go func() {
				defer p.calls.Done()
				p.work(ctx, c)
			}()
		})
		return
	}
	at, ok := p.machines.due(uid)
	if !ok { // the pod waits for an update, or is not known any more
		if wk != nil && wk.timer != nil {
			wk.timer.Stop()
		}
		delete(p.workers, uid)
		return
	}
	wk = p.worker(uid)
	if wk.timer != nil {
		wk.timer.Reset(at.Sub(now))
		return
	}
	wk.timer = time.AfterFunc(at.Sub(now), func() {
		p.mu.Lock()
		p.schedule(uid)
		p.mu.Unlock()
		p.afterUnlock.Run()
	})
}

// worker returns the worker of the pod, a new one if it has none. mu is held.
func (p *Pool) worker(uid types.UID) *worker {
	wk := p.workers[uid]
	if wk == nil {
		wk = &worker{}
		p.workers[uid] = wk
	}
	return wk
}

// begin records that a call of the pod is under way, and returns the context of the
// call. mu is held.
func (p *Pool) begin(c *call) context.Context {
	wk := p.worker(c.ref.UID)
	if wk.timer != nil {
		wk.timer.Stop()
	}
	ctx, cancel := context.WithCancelCause(p.ctx)
	wk.cancel = cancel
	return ctx
}

// work makes a call, and further calls of the pod until none is due.
func (p *Pool) work(ctx context.Context, c call) {
	for ok := true; ok; {
		outcome, report := p.perform(ctx, c)
		ctx, c, ok = p.finish(c, outcome, report)
	}
}

// finish applies the outcome of a call and begins the next one. ok is false if none is
// due.
func (p *Pool) finish(c call, r returned, report Call) (ctx context.Context, next call, ok bool) {
	uid := c.ref.UID
	p.mu.Lock()
	wk := p.workers[uid]
	wk.cancel(nil) // releases the context
	fx, touched := p.transit(uid, r, report.Ended.Sub(report.Began))
	if p.ctx != nil && p.ctx.Err() == nil {
		next, ok = p.machines.take(time.Now(), uid)
	}
	if ok {
		ctx = p.begin(&next)
	} else {
		wk.cancel = nil
	}
	for _, t := range touched {
		p.schedule(t)
	}
	p.mu.Unlock()
	p.afterUnlock.Run()
	p.callDone(c.ref, fx.done)
	if fx.failure != nil {
		p.warn(c.ref, fx.failure.Reason, fx.failure.Message)
	}
	if fx.finished && p.opts.OnFinished != nil {
		p.callback("OnFinished", c.ref, func() { p.opts.OnFinished(c.ref) })
	}
	report.Failure, report.Backoff = fx.failure, fx.backoff
	p.opts.Measure.Emit(report)
	return ctx, next, ok
}

// callDone calls the Done functions of kills.
func (p *Pool) callDone(ref runtime.PodRef, done []func()) {
	for _, f := range done {
		p.callback("Done", ref, f)
	}
}

// warn emits a warning about the pod whose cause is logged.
func (p *Pool) warn(pod runtime.PodRef, reason, message string) {
	p.opts.Event.Emit(runtime.Event{Pod: pod, Type: v1.EventTypeWarning, Reason: reason, Message: message,
		Logged: true})
}

// callback calls a function of the embedder. It logs a panic.
func (p *Pool) callback(name string, pod runtime.PodRef, f func()) {
	if err := runtime.Recover(func() error { f(); return nil }); err != nil {
		p.log.Error(err, "Callback has panicked", "callback", name, "pod", pod)
	}
}
