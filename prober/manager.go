package prober

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// StatusReader tells the last known status of a pod, without asking the runtime.
// [runtime.Cache] is one.
type StatusReader interface {
	Get(uid types.UID) (*runtime.PodStatus, bool)
}

// Options are the settings of a [Manager]; the zero value is good.
type Options struct {
	// Logger; the zero value discards.
	Logger logr.Logger
	// HostIP is where pods on the host's network are probed; of pods with addresses of
	// both families the one of its family is. Default: 127.0.0.1.
	HostIP string
	// UserAgent of HTTP and gRPC checks. Default: "kube-probe/1.36", since
	// applications know probes by that prefix.
	UserAgent string
	// Jitter returns a number in [0,1): by which fraction of its period the first
	// attempt on an instance that ran before the manager did is put off, so that the
	// probes of a node do not all begin at once when its agent is restarted.
	// Default: random.
	Jitter func() float64
}

// Manager runs the probes of pods. Its methods are safe for concurrent use.
// It implements [runtime.ProbeResults].
type Manager struct {
	log    logr.Logger
	status StatusReader
	check  *checker
	hostIP string
	jitter func() float64

	results chan runtime.ProbeResult
	// wake holds a token when there is a new result to send; when it is full there is
	// one already.
	wake chan struct{}

	mu sync.Mutex
	// ctx is Run's, nil before it and after: workers are started under it, each
	// counted in workers.
	ctx     context.Context
	workers sync.WaitGroup
	ran     bool
	// since is when Run began.
	since    time.Time
	pods     map[types.UID]*pod
	verdicts map[runtime.ContainerID]*verdict
	// unsent has the results that the reader has not taken, one for each instance and
	// kind, and order their keys, the oldest first.
	unsent map[resultKey]runtime.ProbeResult
	order  []resultKey
}

var _ runtime.ProbeResults = (*Manager)(nil)

// pod is a pod that was added. It is guarded by Manager.mu.
type pod struct {
	spec *v1.Pod
	// stopping says that only readiness is still of interest.
	stopping bool
	workers  map[workerKey]*worker
}

type workerKey struct {
	container string
	kind      runtime.ProbeKind
}

// verdict is what is known of an instance. It is guarded by Manager.mu.
type verdict struct {
	uid            types.UID
	started, ready bool
	// unhealthy is the kind of probe that has failed for good, "" if none has.
	unhealthy runtime.ProbeKind
}

type resultKey struct {
	id   runtime.ContainerID
	kind runtime.ProbeKind
}

// New returns a manager that probes nothing yet: exec probes go to rt, and pods
// is where it learns which instances run.
func New(rt runtime.Execer, pods StatusReader, opts Options) (*Manager, error) {
	var errs []error
	if rt == nil {
		errs = append(errs, errors.New("prober: no runtime to run commands with was given"))
	}
	if pods == nil {
		errs = append(errs, errors.New("prober: no reader of pod statuses was given"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if opts.Logger.IsZero() {
		opts.Logger = logr.Discard()
	}
	if opts.HostIP == "" {
		opts.HostIP = "127.0.0.1"
	}
	if opts.UserAgent == "" {
		opts.UserAgent = "kube-probe/1.36"
	}
	if opts.Jitter == nil {
		opts.Jitter = randomFraction
	}
	return &Manager{
		log:      opts.Logger,
		status:   pods,
		check:    newChecker(rt, opts.UserAgent),
		hostIP:   opts.HostIP,
		jitter:   opts.Jitter,
		results:  make(chan runtime.ProbeResult), // unbuffered: what waits can still be replaced by what is newer
		wake:     make(chan struct{}, 1),
		pods:     map[types.UID]*pod{},
		verdicts: map[runtime.ContainerID]*verdict{},
		unsent:   map[resultKey]runtime.ProbeResult{},
	}, nil
}

// Run probes until ctx ends, waits for its probes to end, and returns nil. A
// second call returns [runtime.ErrAlreadyRunning].
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.ran {
		m.mu.Unlock()
		return runtime.ErrAlreadyRunning
	}
	m.ran, m.ctx, m.since = true, ctx, time.Now()
	for _, p := range m.pods {
		for _, w := range p.workers {
			m.launch(w)
		}
	}
	m.mu.Unlock()

	m.send(ctx)

	m.mu.Lock()
	m.ctx = nil
	m.mu.Unlock()
	m.workers.Wait()
	m.check.transport.CloseIdleConnections()
	return nil
}

// AddPod has the pod probed as its spec says from now on, or from the start of Run.
// It may be called again at any time, and then is a Notify too: probes that were
// changed are replaced, those that are as before go on undisturbed. The pod must not
// be changed after.
//
// The first time, what pod.Status says of instances is taken for their verdicts
// until there are others.
func (m *Manager) AddPod(spec *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[spec.UID]
	switch {
	case p == nil:
		p = &pod{workers: map[workerKey]*worker{}}
		m.pods[spec.UID] = p
		m.seed(spec)
	default:
		p.poke()
		if p.spec == spec {
			return
		}
	}
	moved := p.spec != nil && runtime.HasHostNetwork(p.spec) != runtime.HasHostNetwork(spec)
	p.spec = spec

	wanted := map[workerKey]*v1.Container{}
	for kind, c := range runtime.Containers(&spec.Spec) {
		if kind == runtime.EphemeralContainer || kind == runtime.InitContainer && !runtime.IsSidecar(c) {
			continue
		}
		for _, k := range kinds {
			if runtime.SpecProbe(c, k) != nil && !(p.stopping && k != runtime.ReadinessProbe) {
				wanted[workerKey{c.Name, k}] = c
			}
		}
	}
	for key, w := range p.workers {
		if c := wanted[key]; c == nil || moved || !sameProbe(c, w.container, key.kind) {
			p.remove(key)
		} else {
			delete(wanted, key)
		}
	}
	for key, c := range wanted {
		w := newWorker(m, spec, c, key.kind)
		p.workers[key] = w
		m.launch(w)
	}
}

// sameProbe reports whether nothing that matters to the probe differs.
func sameProbe(a, b *v1.Container, kind runtime.ProbeKind) bool {
	return equality.Semantic.DeepEqual(runtime.SpecProbe(a, kind), runtime.SpecProbe(b, kind)) &&
		equality.Semantic.DeepEqual(a.Ports, b.Ports) &&
		equality.Semantic.DeepEqual(a.Env, b.Env) &&
		(a.StartupProbe == nil) == (b.StartupProbe == nil)
}

// seed takes over verdicts from the pod's status. It is called with the lock held.
func (m *Manager) seed(spec *v1.Pod) {
	for _, list := range [][]v1.ContainerStatus{spec.Status.InitContainerStatuses, spec.Status.ContainerStatuses} {
		for i := range list {
			cs := &list[i]
			id, err := runtime.ParseContainerID(cs.ContainerID)
			if err != nil || cs.State.Running == nil {
				continue
			}
			m.verdicts[id] = &verdict{uid: spec.UID, started: cs.Started != nil && *cs.Started, ready: cs.Ready}
		}
	}
}

// StopLivenessAndStartup ends the pod's liveness and startup probes, since it is
// being stopped. Verdicts stay.
func (m *Manager) StopLivenessAndStartup(spec *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[spec.UID]
	if p == nil {
		return
	}
	p.stopping = true
	for key := range p.workers {
		if key.kind != runtime.ReadinessProbe {
			p.remove(key)
		}
	}
}

// RemovePod ends the pod's probes, also those under way, and drops its verdicts.
func (m *Manager) RemovePod(spec *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removePod(spec.UID)
}

// Cleanup removes all pods that keep returns false for. keep must not call back.
func (m *Manager) Cleanup(keep func(uid types.UID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.pods {
		if !keep(uid) {
			m.removePod(uid)
		}
	}
}

func (m *Manager) removePod(uid types.UID) {
	p := m.pods[uid]
	if p == nil {
		return
	}
	for key := range p.workers {
		p.remove(key)
	}
	delete(m.pods, uid)
	for id, v := range m.verdicts {
		if v.uid == uid {
			delete(m.verdicts, id)
		}
	}
}

// poke has all workers look at the status.
func (p *pod) poke() {
	for _, w := range p.workers {
		w.poke()
	}
}

// remove ends a worker without waiting for it.
func (p *pod) remove(key workerKey) {
	p.workers[key].stop()
	delete(p.workers, key)
}

// Notify has the pod's probes look at its cached status. It is to be called when
// that may have changed. It does not block.
func (m *Manager) Notify(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[uid]; p != nil {
		p.poke()
	}
}

// HasProbe implements [runtime.ProbeResults].
func (m *Manager) HasProbe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) bool {
	return runtime.SpecProbe(c, kind) != nil
}

// Started implements [runtime.ProbeResults].
func (m *Manager) Started(id runtime.ContainerID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.verdicts[id]
	return v != nil && v.started
}

// Ready implements [runtime.ProbeResults].
func (m *Manager) Ready(id runtime.ContainerID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.verdicts[id]
	return v != nil && v.ready
}

// Unhealthy implements [runtime.ProbeResults].
func (m *Manager) Unhealthy(id runtime.ContainerID) (kind runtime.ProbeKind, yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.verdicts[id]
	if v == nil || v.unhealthy == "" {
		return "", false
	}
	return v.unhealthy, true
}
