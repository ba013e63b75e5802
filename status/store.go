package status

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Options are the settings of a [Store]. The zero value is valid.
type Options struct {
	// Sink receives the statuses and the ends of pods. If nil, statuses are only kept.
	Sink Sink
	// Concurrency is the largest number of calls of the sink at a time, without calls
	// that hang. Default: 16.
	Concurrency int
	// DeliveryTimeout is the deadline of each call of the sink. A call that has not
	// returned one second after its deadline hangs: it is logged, [Store.Healthy]
	// returns an error, its pod waits until it returns, and it no longer counts for
	// Concurrency. Pods whose last call exceeded the deadline get at most half of
	// Concurrency. Default: 1 minute, the time after which an API server aborts a request
	// (kube-apiserver --request-timeout), so that no answer can come later.
	DeliveryTimeout time.Duration
	// RetryMin is the time after which a failed call is repeated. It doubles with each
	// failure in a row up to RetryMax. Defaults: 250 ms, and 10 s, the period after
	// which kubelet repeats.
	RetryMin, RetryMax time.Duration
	// MayRun reports whether containers of the pod may run. While they may, a final
	// phase is held back from the sink. MayRun is called in Set and Recheck. If nil, a pod
	// may run while its status contains a running container.
	MayRun func(uid types.UID) bool
	// Changed is called after the latest status of a pod was set or dropped, and after PodFinished. It must not block.
	// If nil, nothing is called.
	Changed func(uid types.UID)
	// Observer receives the measurements [Delivered], [DeliveryFailed], [DeliveriesHanging] and [PodStarted].
	runtime.Observer
}

// Store is the default [Manager].
type Store struct {
	log     logr.Logger
	sink    Sink
	timeout time.Duration
	mayRun  func(types.UID) bool
	measure runtime.MeasureFunc
	// latest is [Options.Changed]; nil: nothing is called.
	latest func(types.UID)
	// waitForObserver is called when Run ends.
	waitForObserver func()

	// wake holds a token when there may be a call to make. Further tokens are dropped:
	// the loop makes all calls that are due.
	wake flow.Signal

	// afterUnlock has the log lines that follow from changes under mu.
	afterUnlock flow.Queue

	mu      sync.Mutex
	started bool
	// pods has an entry of each pod that has a status, and of each pod that is gone
	// while calls of the sink are due.
	pods map[types.UID]*entry
	// held has the entries whose final phase is held back from the sink, or for which MayRun
	// has not been called yet.
	held  map[types.UID]*entry
	calls schedule
}

var _ Manager = (*Store)(nil)

// New returns a manager without pods. The error names all options that are invalid.
func New(opts Options) (*Store, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	observer, wait := opts.Queued()
	return &Store{
		log:     observer.Logger,
		sink:    opts.Sink,
		timeout: opts.DeliveryTimeout,
		mayRun:  opts.MayRun,
		measure: observer.Measure, waitForObserver: wait,
		latest: opts.Changed,
		wake:   flow.NewSignal(),
		pods:   map[types.UID]*entry{},
		held:   map[types.UID]*entry{},
		calls:  newSchedule(opts.Concurrency, flow.Backoff{Min: opts.RetryMin, Max: opts.RetryMax}),
	}, nil
}

// complete sets the defaults and returns an error for each invalid option.
func (o *Options) complete() error {
	var errs []error
	if o.Concurrency < 0 {
		errs = append(errs, fmt.Errorf("status: Concurrency is %d, want at least 1 or 0 for the default",
			o.Concurrency))
	}
	if o.DeliveryTimeout < 0 {
		errs = append(errs, fmt.Errorf("status: DeliveryTimeout is %v, want more than 0 or 0 for the default",
			o.DeliveryTimeout))
	}
	if o.RetryMin < 0 || o.RetryMax < 0 {
		errs = append(errs, fmt.Errorf("status: RetryMin %v and RetryMax %v must not be below 0",
			o.RetryMin, o.RetryMax))
	}
	if o.Concurrency == 0 {
		o.Concurrency = 16
	}
	if o.DeliveryTimeout == 0 {
		o.DeliveryTimeout = time.Minute
	}
	if o.RetryMin == 0 {
		o.RetryMin = 250 * time.Millisecond
	}
	if o.RetryMax == 0 {
		o.RetryMax = max(10*time.Second, o.RetryMin)
	}
	if o.RetryMax < o.RetryMin {
		errs = append(errs, fmt.Errorf("status: RetryMax %v is below RetryMin %v", o.RetryMax, o.RetryMin))
	}
	return errors.Join(errs...)
}

// unlock releases the lock, and carries out the effects of what was done with it.
func (m *Store) unlock() {
	m.mu.Unlock()
	m.afterUnlock.Run()
}

// measured passes a measurement on after unlock. mu is held.
func (m *Store) measured(v runtime.Measurement) {
	if m.measure != nil {
		m.afterUnlock.Add(func() { m.measure(v) })
	}
}

// latestChanged calls [Options.Changed] after unlock. mu is held.
func (m *Store) latestChanged(uid types.UID) {
	if m.latest != nil {
		m.afterUnlock.Add(func() { m.latest(uid) })
	}
}

// Get implements [Manager].
func (m *Store) Get(uid types.UID) (v1.PodStatus, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.pods[uid]; r != nil && r.live != nil {
		return *r.live.status, true
	}
	return v1.PodStatus{}, false
}

// Pods implements [Manager].
func (m *Store) Pods() []*v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	var pods []*v1.Pod
	for _, r := range m.pods {
		if r.live != nil {
			pod := *r.live.pod
			pod.Status = *r.live.status // never changed in place
			pods = append(pods, &pod)
		}
	}
	return pods
}

// Finished reports whether Terminate was called for the pod.
func (m *Store) Finished(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.pods[uid]
	return r != nil && r.live != nil && r.live.finished
}

// Set implements [Manager].
func (m *Store) Set(pod *v1.Pod, s v1.PodStatus) {
	own := *s.DeepCopy()
	m.update(pod, false, func(*v1.PodStatus) v1.PodStatus { return own })
}

// Terminate implements [Manager].
func (m *Store) Terminate(pod *v1.Pod) {
	m.update(pod, true, func(last *v1.PodStatus) v1.PodStatus { return terminated(pod, *last.DeepCopy()) })
}

// update implements Set and Terminate. next returns the new status for the last one, which
// it must not change. The result must share no memory with anything else.
func (m *Store) update(pod *v1.Pod, finish bool, next func(last *v1.PodStatus) v1.PodStatus) {
	if m.set(pod, finish, next, time.Now()) {
		m.decide(pod.UID)
	}
}

// set is the part of update with the lock. It reports whether decide has to be called.
func (m *Store) set(pod *v1.Pod, finish bool, next func(last *v1.PodStatus) v1.PodStatus,
	now time.Time) (undecided bool) {
	m.mu.Lock()
	defer m.unlock()

	r := m.pods[pod.UID]
	old := &pod.Status
	if r != nil && r.live != nil {
		old = r.live.status
	}
	s := next(old)
	if err := checkContainerStateTransition(pod, old, &s); err != nil {
		m.afterUnlock.Add(func() { m.log.Error(err, "Status refused", "pod", runtime.RefOf(pod)) })
		return false
	}
	s.ObservedGeneration = pod.Generation
	clampPhase(&s, old)
	inherit(&s, old, now)
	normalize(pod, &s)

	if r == nil {
		r = &entry{ref: runtime.RefOf(pod)}
		m.pods[pod.UID] = r
	}
	if r.live == nil {
		r.live = &incarnation{since: now, starting: !podspec.IsStatic(pod) && pod.Status.StartTime.IsZero()}
	}
	if r.live.status != nil && r.live.status.Phase == v1.PodPending && s.Phase == v1.PodRunning {
		m.measured(PodStarted{now.Sub(r.live.since)})
	}
	r.live.finished = r.live.finished || finish
	r.live.pod, r.live.status = pod, &s
	m.latestChanged(pod.UID)
	if r.live.mayHoldBack() {
		m.held[pod.UID] = r
		return true
	}
	m.publish(r, false, now)
	return false
}

// decide determines whether the final phase of the pod is held back, and publishes its status
// accordingly. The pod is in held before MayRun is called, so that no Recheck misses it.
func (m *Store) decide(uid types.UID) {
	mayRun := m.mayRun != nil && m.mayRun(uid)
	m.mu.Lock()
	defer m.unlock()
	r := m.held[uid]
	if r == nil {
		return
	}
	if m.mayRun == nil {
		mayRun = anyRunning(r.live.status)
	}
	m.publish(r, mayRun && r.live.mayHoldBack(), time.Now())
}

// publish determines the status to deliver from the latest one, and schedules its delivery
// if it has changed. It adds the entry to held, or removes it.
func (m *Store) publish(r *entry, holdBack bool, now time.Time) {
	i := r.live
	if holdBack {
		m.held[r.ref.UID] = r
	} else {
		delete(m.held, r.ref.UID)
	}
	before := i.out
	if i.setOut(outgoing(i.pod, i.out, *i.status, holdBack), now) {
		if before != nil && urgent(before, i.out, r.urgentAt, now) {
			r.urgentAt = now
			m.calls.prioritize(r)
		}
		phase, version := i.out.Phase, i.version
		m.afterUnlock.Add(func() {
			m.log.V(4).Info("Status changed", "pod", r.ref, "phase", phase, "version", version)
		})
		m.changed(r)
	}
}

// Recheck implements [Manager].
func (m *Store) Recheck() {
	m.mu.Lock()
	held := slices.Collect(maps.Keys(m.held))
	m.mu.Unlock()
	for _, uid := range held {
		m.decide(uid)
	}
}

// Forget implements [Manager].
func (m *Store) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.unlock()
	if r := m.pods[uid]; r != nil && r.live != nil {
		m.forget(r)
	}
}

// Prune implements [Manager]. It keeps a pod whose status changes meanwhile.
func (m *Store) Prune(keep func(uid types.UID) bool) {
	m.mu.Lock()
	before := make(map[types.UID]*v1.PodStatus, len(m.pods))
	for uid, r := range m.pods {
		if r.live != nil {
			before[uid] = r.live.status
		}
	}
	m.mu.Unlock()
	maps.DeleteFunc(before, func(uid types.UID, _ *v1.PodStatus) bool { return keep(uid) })
	m.mu.Lock()
	defer m.unlock()
	for uid, s := range before {
		if r := m.pods[uid]; r != nil && r.live != nil && r.live.status == s {
			m.forget(r)
		}
	}
}

// PodFinished implements [Manager].
func (m *Store) PodFinished(pod runtime.PodRef) {
	if m.latest != nil {
		m.latest(pod.UID)
	}
	if m.sink == nil {
		return
	}
	if err := runtime.Recover(func() error { m.sink.PodFinished(pod); return nil }); err != nil {
		m.log.Error(err, "Callback has panicked", "callback", "Sink.PodFinished", "pod", pod)
	}
}

// PodEnded implements [Manager].
func (m *Store) PodEnded(pod runtime.PodRef) {
	m.mu.Lock()
	defer m.unlock()
	r := m.pods[pod.UID]
	switch {
	case r != nil && r.live != nil:
		m.forget(r)
	case r == nil && m.sink != nil:
		r = &entry{ref: pod, gone: &incarnation{}}
		m.pods[pod.UID] = r
		m.changed(r)
	}
}

// forget moves the live pod of the entry to gone.
func (m *Store) forget(r *entry) {
	i := r.live
	r.live = nil
	m.latestChanged(r.ref.UID)
	delete(m.held, r.ref.UID)
	i.setOut(outgoing(i.pod, i.out, *i.status, false), time.Now())
	if r.gone != nil {
		// The end of an earlier pod of the UID is still due, and comes first. PodGone is
		// called once for both, with the last status of the later one.
		i.delivered = i.version
	}
	r.gone = i
	m.changed(r)
}

// changed schedules a call of the sink for what is new of the entry.
func (m *Store) changed(r *entry) {
	r.fresh = true
	if r.refused {
		r.failures, r.refused = 0, false
	}
	m.settle(r)
}

// redeliver has the latest status of the pod delivered again, because the sink requests it.
func (m *Store) redeliver(uid types.UID) {
	m.mu.Lock()
	defer m.unlock()
	r := m.pods[uid]
	if r == nil || r.live == nil || r.live.out == nil {
		return
	}
	r.live.version++
	if r.live.finished {
		m.calls.prioritize(r) // the receiver may free what the pod holds
	}
	if r.stage == backingOff {
		m.calls.advance(r, time.Now())
		m.wake.Notify()
		return
	}
	m.settle(r)
}

// settle schedules a call of the sink for the entry if one is due, and removes the entry
// if it is not needed any more. It does nothing while a call is scheduled or under way, except
// that it ends a wait.
func (m *Store) settle(r *entry) {
	m.calls.changed(r)
	if r.stage == queued {
		m.wake.Notify()
	}
	if r.stage != idle {
		return
	}
	if m.sink == nil {
		r.gone = nil
	}
	switch {
	case r.gone == nil && r.live == nil:
		delete(m.pods, r.ref.UID)
	case m.sink != nil && r.due() != nil:
		m.calls.ready(r)
		m.wake.Notify()
	}
}
