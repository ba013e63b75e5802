package status

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of a [Manager]; the zero value is good.
type Options struct {
	// Logger; the zero value discards.
	Logger logr.Logger
	// Sink receives the statuses; nil means that they are only kept.
	Sink Sink
	// Concurrency bounds the deliveries under way. Default: 16.
	Concurrency int
	// RetryMin is the time before a failed delivery is repeated. It doubles with each
	// failure in a row up to RetryMax. Defaults: 250 ms, and 10 s, the period after
	// which kubelet repeats.
	RetryMin, RetryMax time.Duration
	// MayRun reports whether containers of the pod may still run; until it does not, a
	// final phase is held back from the sink. It is asked in Set and Terminate, under
	// the manager's lock, and must not call back. nil means that a pod may run while
	// its status has a running container.
	MayRun func(uid types.UID) bool
}

// Manager keeps the latest status of each pod and delivers it. Its methods are
// safe for concurrent use, before, during and after Run.
type Manager struct {
	log                logr.Logger
	sink               Sink
	limit              int
	retryMin, retryMax time.Duration
	mayRun             func(types.UID) bool

	// wake holds a token when there may be something new to deliver; when it is full
	// there is one already.
	wake chan struct{}

	mu      sync.Mutex
	started bool
	pods    map[types.UID]*record
	// queue has the pods whose stage is queued, in order.
	queue []types.UID
	// retries has the pods whose stage is backingOff.
	retries map[types.UID]*record
	// inFlight counts the pods whose stage is delivering.
	inFlight int
}

// record is what the manager knows of one pod. It is guarded by Manager.mu; the
// statuses it points to are replaced, never changed.
type record struct {
	pod *v1.Pod
	// status is the latest, nil once the pod was forgotten; then the record lives on
	// only for what is not delivered yet.
	status *v1.PodStatus
	// out is the part of status that may be told, and version its number. What has
	// been delivered is never newer than version.
	out                *v1.PodStatus
	version, delivered uint64
	// finished says that Terminate was called.
	finished bool
	stage    stage
	// failures in a row of deliveries; retry is the time of the next one when the
	// stage is backingOff.
	failures int
	retry    time.Time
}

type stage int

const (
	idle       stage = iota // nothing to deliver
	queued                  // in Manager.queue
	delivering              // with the sink
	backingOff              // waits for record.retry
)

var _ StatusManager = (*Manager)(nil)

// New returns a manager that has no pods.
func New(opts Options) (*Manager, error) {
	m := &Manager{
		log:      opts.Logger,
		sink:     opts.Sink,
		limit:    opts.Concurrency,
		retryMin: opts.RetryMin,
		retryMax: opts.RetryMax,
		mayRun:   opts.MayRun,
		wake:     make(chan struct{}, 1),
		pods:     map[types.UID]*record{},
		retries:  map[types.UID]*record{},
	}
	if m.log.IsZero() {
		m.log = logr.Discard()
	}
	var errs []error
	if m.limit < 0 {
		errs = append(errs, fmt.Errorf("status: Concurrency is %d, want at least 1 or 0 for the default", m.limit))
	}
	if m.retryMin < 0 || m.retryMax < 0 {
		errs = append(errs, fmt.Errorf("status: RetryMin %v and RetryMax %v must not be below 0", m.retryMin, m.retryMax))
	}
	if m.limit == 0 {
		m.limit = 16
	}
	if m.retryMin == 0 {
		m.retryMin = 250 * time.Millisecond
	}
	if m.retryMax == 0 {
		m.retryMax = max(10*time.Second, m.retryMin)
	}
	if m.retryMax < m.retryMin {
		errs = append(errs, fmt.Errorf("status: RetryMax %v is below RetryMin %v", m.retryMax, m.retryMin))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return m, nil
}

// Get returns the latest status of the pod, or false. It is read-only.
func (m *Manager) Get(uid types.UID) (v1.PodStatus, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.pods[uid]; r != nil && r.status != nil {
		return *r.status, true
	}
	return v1.PodStatus{}, false
}

// Finished reports whether Terminate was called for the pod, so that a sink may
// have the API object deleted.
func (m *Manager) Finished(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.pods[uid]
	return r != nil && r.status != nil && r.finished
}

// Set makes s the latest status of the pod, and has it delivered if it differs
// from what was. It copies s and keeps a reference to pod, which must not be
// changed after. A status that would have a container live again which has ended
// for good is refused and logged; a phase that would go back stays.
func (m *Manager) Set(pod *v1.Pod, s v1.PodStatus) {
	own := *s.DeepCopy()
	m.update(pod, false, func(*v1.PodStatus) v1.PodStatus { return own })
}

// Terminate marks the pod as one of which nothing is left to stop: its containers
// have ended, and its phase is final unless the pod is static. The first call is
// delivered even if the status stays the same, so that a sink can delete the pod.
func (m *Manager) Terminate(pod *v1.Pod) {
	m.update(pod, true, func(last *v1.PodStatus) v1.PodStatus { return terminated(pod, *last.DeepCopy()) })
}

// update is Set and Terminate. next makes the new status from the last one, which
// it must not change; nobody else may hold what it returns.
func (m *Manager) update(pod *v1.Pod, finish bool, next func(last *v1.PodStatus) v1.PodStatus) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()

	r := m.pods[pod.UID]
	old := &pod.Status
	if r != nil && r.status != nil {
		old = r.status
	}
	s := next(old)
	if err := checkTransition(pod, old, &s); err != nil {
		m.log.Error(err, "Status refused", "pod", runtime.RefOf(pod))
		return
	}
	if r == nil {
		r = &record{}
		m.pods[pod.UID] = r
	}
	s.ObservedGeneration = pod.Generation
	clampPhase(&s, old)
	inherit(&s, old, now)
	normalize(pod, &s)

	forgotten := r.status == nil
	if forgotten {
		r.finished = false
	}
	news := finish && !r.finished
	r.finished = r.finished || finish
	r.pod, r.status = pod, &s

	mayRun := !r.finished
	if mayRun {
		if m.mayRun != nil {
			mayRun = m.mayRun(pod.UID)
		} else {
			mayRun = anyRunning(&s)
		}
	}
	sent := r.out
	if forgotten {
		sent = nil
	}
	out := outgoing(pod, sent, s, mayRun)
	if sent != nil && !news && equality.Semantic.DeepEqual(sent, &out) {
		return
	}
	r.out = &out
	r.version++
	m.log.V(4).Info("Status changed", "pod", runtime.RefOf(pod), "phase", out.Phase, "version", r.version)
	if r.stage == idle {
		m.enqueue(pod.UID, r)
	}
}

// Forget drops the status of the pod. A change that is not delivered yet is tried
// once more.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.pods[uid]; r != nil {
		m.forget(uid, r)
	}
}

// Prune forgets all pods that keep returns false for. keep must not call back.
func (m *Manager) Prune(keep func(uid types.UID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, r := range m.pods {
		if r.status != nil && !keep(uid) {
			m.forget(uid, r)
		}
	}
}

func (m *Manager) forget(uid types.UID, r *record) {
	r.status = nil
	if r.stage == idle || m.sink == nil {
		delete(m.pods, uid)
	}
}
