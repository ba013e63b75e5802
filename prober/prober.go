package prober

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of a [Prober]; the zero value is valid.
type Options struct {
	// Handlers make probes of other types than the API's. For each container they are
	// tried before the default handlers, in this order; the first that has the probe
	// makes it.
	Handlers []Handler
	// HostIPs returns the addresses of the node as they are now. Pods on the host's network are
	// probed at the first one. For a pod with addresses of both families, the address of its
	// family is used. HostIPs is called for each attempt, so it must be fast, and safe for
	// concurrent use. If it is nil or returns none, the address is 127.0.0.1.
	HostIPs func() []string
	// UserAgent of HTTP and gRPC checks. Default: "kube-probe/1.37", since
	// applications recognize probes by that prefix.
	UserAgent string
	// H2C makes httpGet probes of the protocol HTTP2 in HTTP/2 without TLS (KEP-5999; kubelet: the feature gate
	// H2CContainerProbe). Default: they are made in HTTP/1.1.
	H2C bool
	// GRPCTLS makes gRPC probes of the mode TLS over TLS, without verification (KEP-4939; kubelet: the feature gate
	// GRPCContainerProbeTLS). Default: they are not encrypted.
	GRPCTLS bool
	// States keeps the results of startup and readiness probes for the next run of the agent. They are kept when one
	// changes, all together, with about 130 bytes for each container that is probed. If nil, the results after a
	// restart of the agent are those in the status that a pod is added with.
	States runtime.States
	// Jitter returns a number in [0,1): the fraction of its period by which the first
	// attempt is delayed on an instance that ran before the manager did, so that the
	// probes of a node do not all begin at once when its agent is restarted.
	// Default: random.
	Jitter func() float64
	// Observer receives an event for each attempt that fails, that cannot be made, or that succeeds with a warning, a
	// record of each change of the result of a probe, and the measurements [Attempt] and [ProbeRemoved]. If it is
	// NonBlocking, a result is delivered after its record.
	runtime.Observer
}

// Prober is the default [Manager]. It runs each probe in a goroutine of its
// own.
type Prober struct {
	log      logr.Logger
	status   StatusReader
	handlers chain
	hostIPs  func() []string
	jitter   func() float64
	observer runtime.Observer
	// waitForObserver is called when Run ends.
	waitForObserver func()
	keep            runtime.States // or nil
	loadOnce        sync.Once

	results chan runtime.ProbeResult
	// wake holds a token if there is a new result to send. A second token would mean
	// the same.
	wake flow.Signal

	// afterUnlock has records, measurements, log lines and results, in the order of what they report.
	afterUnlock flow.Queue

	mu sync.Mutex
	// ctx is the context of Run, nil before and after it. Workers are started under
	// it, each counted in workers.
	ctx     context.Context
	workers sync.WaitGroup
	running map[*worker]struct{} // counted in workers
	ran     bool
	// since is when Run began.
	since  time.Time
	pods   map[types.UID]*pod
	states map[runtime.ContainerID]*state
	// kept are the results that an earlier run has kept, of pods that were not added yet.
	kept keptResults
	// unsent has the results that the reader has not received, one for each instance
	// and kind, and order has their keys, the oldest first.
	unsent map[resultKey]runtime.ProbeResult
	order  []resultKey
}

var _ Manager = (*Prober)(nil)

// state is what probes have found about an instance. It is guarded by Prober.mu.
type state struct {
	uid            types.UID
	started, ready bool
	// unhealthy is the kind of the probe that has failed for good, or empty.
	unhealthy runtime.ProbeKind
}

type resultKey struct {
	id   runtime.ContainerID
	kind runtime.ProbeKind
}

// New returns a Prober. rt runs the commands of exec probes, and pods has the
// status of the pods, as a [runtime.Cache] has it: which instances run, and the pods' addresses. The error names
// everything that is missing.
func New(rt runtime.Execer, pods StatusReader, opts Options) (*Prober, error) {
	observer, wait := opts.Queued()
	var errs []error
	if rt == nil {
		errs = append(errs, errors.New("prober: no runtime to run exec probes"))
	}
	if pods == nil {
		errs = append(errs, errors.New("prober: no reader of pod statuses"))
	}
	for i, h := range opts.Handlers {
		if h == nil {
			errs = append(errs, fmt.Errorf("prober: Options.Handlers[%d] is nil", i))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if opts.Jitter == nil {
		opts.Jitter = rand.Float64
	}
	m := &Prober{
		log:      observer.Logger,
		status:   pods,
		handlers: newChain(opts.Handlers, DefaultHandlers(rt, opts)),
		hostIPs:  opts.HostIPs,
		jitter:   opts.Jitter,
		observer: observer, waitForObserver: wait,
		keep:    opts.States,
		results: make(chan runtime.ProbeResult),
		wake:    flow.NewSignal(),
		pods:    map[types.UID]*pod{},
		running: map[*worker]struct{}{},
		states:  map[runtime.ContainerID]*state{},
		unsent:  map[resultKey]runtime.ProbeResult{},
	}
	return m, nil
}

// hostAddress returns the address of the node as it is now.
func (m *Prober) hostAddress() string {
	if m.hostIPs != nil {
		if ips := m.hostIPs(); len(ips) > 0 {
			return ips[0]
		}
	}
	return "127.0.0.1"
}

// Run implements [Manager].
func (m *Prober) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.ran {
		m.mu.Unlock()
		return fmt.Errorf("prober: %w", runtime.ErrAlreadyRunning)
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
	flow.Wait(&m.workers, flow.Late, m.logLate)
	m.waitForObserver()
	return nil
}

// logLate logs the probes that have not ended after Run should have ended.
func (m *Prober) logLate() {
	m.mu.Lock()
	late := slices.Collect(maps.Keys(m.running))
	m.mu.Unlock()
	for _, w := range late {
		w.log.Error(nil, "The prober cannot stop: an attempt has not returned although its context has ended")
	}
}

// HasProbe implements [runtime.ProbeResults]. A handler in [Options.Handlers] may
// have a probe that is not in the spec.
func (m *Prober) HasProbe(pod *v1.Pod, c *v1.Container, kind runtime.ProbeKind) bool {
	l, _ := m.handlers.find(pod, c, kind)
	return l != nil
}

// Started implements [runtime.ProbeResults].
func (m *Prober) Started(id runtime.ContainerID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.states[id]
	return s != nil && s.started
}

// Ready implements [runtime.ProbeResults].
func (m *Prober) Ready(id runtime.ContainerID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.states[id]
	return s != nil && s.ready
}

// Unhealthy implements [runtime.ProbeResults].
func (m *Prober) Unhealthy(id runtime.ContainerID) (kind runtime.ProbeKind, yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.states[id]
	if s == nil || s.unhealthy == "" {
		return "", false
	}
	return s.unhealthy, true
}
