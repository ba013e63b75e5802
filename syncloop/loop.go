package syncloop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/backoff"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Periods of kubelet's loop.
const (
	defaultSyncPeriod         = time.Second     // kubelet: plegChannel tick of syncLoop
	defaultHousekeepingPeriod = 2 * time.Second // kubelet: housekeepingPeriod
)

// retries are the pauses while the runtime or the PLEG is not healthy (kubelet: base and
// max of the back-off in syncLoop).
var retries = backoff.Exponential{Min: 100 * time.Millisecond, Max: 5 * time.Second}

// SyncHandler handles the inputs of the loop. Its methods are called from one goroutine
// and must not wait for a pod. Optional interfaces are [Preparer] and [Observer].
type SyncHandler interface {
	// HandlePodAdditions takes pods that are newly desired, and pods that are restored
	// from the disk.
	HandlePodAdditions(pods []*v1.Pod)
	// HandlePodUpdates takes pods whose spec or metadata changed, or whose deletion was
	// requested.
	HandlePodUpdates(pods []*v1.Pod)
	// HandlePodRemoves takes pods that are not desired any more.
	HandlePodRemoves(pods []*v1.Pod)
	// HandlePodReconcile takes pods of which only the status differs.
	HandlePodReconcile(pods []*v1.Pod)
	// HandlePodSyncs takes pods that something happened to.
	HandlePodSyncs(pods []*v1.Pod)
	// HandlePodCleanups does the housekeeping. It is called only after every source has
	// delivered.
	HandlePodCleanups(ctx context.Context) error
}

// Preparer is an optional interface of a [SyncHandler], found by [runtime.Optional]: it
// looks at the runtime before it is handed anything.
type Preparer interface {
	// Prepare is called from the loop's goroutine when the runtime is fit for the
	// first time, and again after a rest until it returns nil.
	Prepare(ctx context.Context) error
}

// Observer is an optional interface of a [SyncHandler], found by [runtime.Optional].
type Observer interface {
	// Observe is called with each event of the runtime before it is handled, from the
	// goroutine of the loop.
	Observe(ev pleg.PodEvents)
}

// Config is the stream of desired state; a podconfig.PodConfig is one.
type Config interface {
	Changes() <-chan podconfig.Change
	// AllSeen reports whether every source has delivered. It becomes false again when a
	// source is added.
	AllSeen() bool
}

// RuntimeEvents is the stream of changes in the runtime; a pleg.Generator is one.
type RuntimeEvents interface {
	Watch() <-chan pleg.PodEvents
	Healthy() error
}

// Pods finds the desired pod of a UID; a podmanager.PodManager is one.
type Pods interface {
	ByUID(uid types.UID) (*v1.Pod, bool)
}

// Deps are the inputs of a [Loop]. All but Probes are required.
type Deps struct {
	Handler SyncHandler
	Config  Config
	PLEG    RuntimeEvents
	Runtime runtime.Checker
	// Pods finds the desired pod that an event is about.
	Pods Pods
	// Probes are the results of liveness, startup and readiness probes. nil: none.
	Probes <-chan runtime.ProbeResult
}

// Options are the settings of a [Loop]; the zero value is kubelet's.
type Options struct {
	// SyncPeriod is the time between sync ticks. Default 1 s.
	SyncPeriod time.Duration
	// HousekeepingPeriod is the time between cleanups. Default 2 s.
	HousekeepingPeriod time.Duration
	// CheckPeriod is the time between checks of a healthy runtime. Default 5 s.
	CheckPeriod time.Duration
	// CheckTimeout bounds one check of the runtime. Default 10 s.
	CheckTimeout time.Duration
	// Due returns the pods that are to be synced at a sync tick, for embedders with
	// deadlines of their own. Workers keep their own timers. nil: none.
	Due func(now time.Time) []*v1.Pod
	// Observe is called with each event of the runtime, before it is handled. nil: no
	// callback. See also [Observer].
	Observe func(pleg.PodEvents)
	// Logger of failures and, at V(2), of what the loop handles.
	Logger logr.Logger
}

// Loop is the loop of a node agent.
type Loop struct {
	deps Deps
	opts Options
	log  logr.Logger

	started atomic.Bool
	synced  atomic.Bool  // see Synced
	last    atomic.Int64 // unix nanoseconds of the last time round; 0 before the first
	health  *runtimeHealth
	observe []func(pleg.PodEvents)
	// ended has room for one: it is full when pods have ended since housekeeping was
	// last asked for.
	ended chan struct{}
	// soon has housekeeping come for pods that have ended; nil when there are none. It
	// belongs to the goroutine of Run.
	soon <-chan time.Time
}

// New returns a loop, or an error that names what is missing.
func New(deps Deps, opts Options) (*Loop, error) {
	var errs []error
	require := func(ok bool, name string) {
		if !ok {
			errs = append(errs, fmt.Errorf("syncloop: Deps.%s is required", name))
		}
	}
	require(deps.Handler != nil, "Handler")
	require(deps.Config != nil, "Config")
	require(deps.PLEG != nil, "PLEG")
	require(deps.Runtime != nil, "Runtime")
	require(deps.Pods != nil, "Pods")
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	setDefault(&opts.SyncPeriod, defaultSyncPeriod)
	setDefault(&opts.HousekeepingPeriod, defaultHousekeepingPeriod)
	setDefault(&opts.CheckPeriod, 5*time.Second)
	setDefault(&opts.CheckTimeout, 10*time.Second)
	observe := []func(pleg.PodEvents){}
	if opts.Observe != nil {
		observe = append(observe, opts.Observe)
	}
	if o, ok := runtime.Optional[Observer](deps.Handler); ok {
		observe = append(observe, o.Observe)
	}
	return &Loop{observe: observe, deps: deps, opts: opts, log: opts.Logger, health: newRuntimeHealth(), ended: make(chan struct{}, 1)}, nil
}

func setDefault(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

// Run goes round until the context ends, and then returns nil. It returns early
// with an error if an input is closed.
func (l *Loop) Run(ctx context.Context) error {
	if !l.started.CompareAndSwap(false, true) {
		return fmt.Errorf("syncloop: %w", runtime.ErrAlreadyRunning)
	}
	// The loop itself keeps to the caller's context: an input that is closed because the
	// caller's context ended may be received before a context derived from it has ended.
	watched, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before the wait
	wg.Go(func() { l.watchRuntime(watched) })

	syncTick := time.NewTicker(l.opts.SyncPeriod)
	defer syncTick.Stop()
	housekeeping := time.NewTicker(l.opts.HousekeepingPeriod)
	defer housekeeping.Stop()

	prepare := func(context.Context) error { return nil }
	if p, ok := runtime.Optional[Preparer](l.deps.Handler); ok {
		prepare = p.Prepare
	}
	failures := 0
	for ctx.Err() == nil {
		err := l.unfit()
		if err == nil && prepare != nil {
			if err = prepare(ctx); err == nil {
				prepare = nil
			}
		}
		if err != nil {
			failures++
			rest := retries.After(failures)
			l.log.V(2).Info("Skipping pod synchronization", "reason", err.Error(), "retryAfter", rest)
			if !l.pause(ctx, rest) {
				break
			}
			continue
		}
		failures = 0
		if err := l.once(ctx, syncTick.C, housekeeping.C); err != nil {
			return err
		}
	}
	return nil
}

// unfit returns why no pod should be touched now, or nil.
func (l *Loop) unfit() error {
	if err := l.health.get(); err != nil && !errors.Is(err, runtime.ErrNetworkNotReady) {
		return err
	}
	return l.deps.PLEG.Healthy()
}

// pause waits for d, or until the health of the runtime changes. It returns false
// if the context ended.
func (l *Loop) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-l.health.changed:
	case <-t.C:
	}
	return true
}

// PodEnded reports that a pod has terminated and that its worker is through with it.
// Housekeeping follows after 250 ms, so that it removes what the pod left behind;
// several pods share one. It may be called from any goroutine and does not block.
func (l *Loop) PodEnded() {
	select {
	case l.ended <- struct{}{}:
	default: // one that is to come serves this pod too
	}
}

// gatherEnds is how long housekeeping waits for more pods to end: it lists the
// pods of the runtime, which costs as much as the end of several.
const gatherEnds = 250 * time.Millisecond

// once waits for one input and handles it.
func (l *Loop) once(ctx context.Context, syncTick, housekeeping <-chan time.Time) error {
	h := l.deps.Handler
	l.last.Store(time.Now().UnixNano())
	l.synced.Store(l.deps.Config.AllSeen())
	ended := l.ended
	if l.soon != nil {
		ended = nil // it keeps for the next time
	}
	select {
	case <-ctx.Done():
	case <-l.health.changed:
		// The runtime went away or came back: look before the next input is taken.
	case change, ok := <-l.deps.Config.Changes():
		if !ok {
			return l.closed(ctx, "the stream of desired state")
		}
		l.dispatch(change)
	case ev, ok := <-l.deps.PLEG.Watch():
		if !ok {
			return l.closed(ctx, "the stream of runtime events")
		}
		for _, observe := range l.observe {
			observe(ev)
		}
		if pod, ok := l.deps.Pods.ByUID(ev.Pod.UID); ok && worthSync(ev) {
			h.HandlePodSyncs([]*v1.Pod{pod})
		}
	case res, ok := <-l.deps.Probes:
		if !ok {
			return l.closed(ctx, "the stream of probe results")
		}
		l.log.V(2).Info("Probe result", "pod", res.Pod, "container", res.ContainerID, "probe", res.Kind, "healthy", res.Healthy)
		if pod, ok := l.deps.Pods.ByUID(res.Pod.UID); ok {
			h.HandlePodSyncs([]*v1.Pod{pod})
		}
	case now := <-syncTick:
		if l.opts.Due != nil {
			if pods := l.opts.Due(now); len(pods) > 0 {
				h.HandlePodSyncs(pods)
			}
		}
	case <-ended:
		l.soon = time.After(gatherEnds)
	case <-l.soon:
		l.soon = nil
		l.clean(ctx)
	case <-housekeeping:
		l.clean(ctx)
	}
	return nil
}

// clean calls the handler's housekeeping, unless a source has not delivered yet.
func (l *Loop) clean(ctx context.Context) {
	if !l.deps.Config.AllSeen() { // asked anew: a source may have been added meanwhile
		return
	}
	if err := l.deps.Handler.HandlePodCleanups(ctx); err != nil && ctx.Err() == nil {
		l.log.Error(err, "Housekeeping failed; it is tried again at the next tick")
	}
}

// closed is the outcome of an input that ended: fine while stopping, else an error.
func (l *Loop) closed(ctx context.Context, what string) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("syncloop: %s ended while the loop runs", what)
}

func (l *Loop) dispatch(change podconfig.Change) {
	h := l.deps.Handler
	if len(change.Pods) == 0 {
		return // a source was seen that has no pods
	}
	l.log.V(2).Info("Desired state changed", "op", change.Op, "source", change.Source, "pods", len(change.Pods))
	switch change.Op {
	case podconfig.Add, podconfig.Restore:
		// A restored pod is a new one like any other. AllSeen is false until its source
		// has delivered.
		h.HandlePodAdditions(change.Pods)
	case podconfig.Update, podconfig.Delete:
		// A deletion that is to be graceful is an update with a deletion timestamp.
		h.HandlePodUpdates(change.Pods)
	case podconfig.Remove:
		h.HandlePodRemoves(change.Pods)
	case podconfig.Reconcile:
		h.HandlePodReconcile(change.Pods)
	default:
		l.log.Error(nil, "Ignoring a change of an unknown kind", "op", change.Op, "source", change.Source)
	}
}

// worthSync reports whether a pod must be synced for the events: it need not for
// containers that were merely removed.
func worthSync(ev pleg.PodEvents) bool {
	for _, e := range ev.Events {
		if e.Type != pleg.ContainerRemoved && e.Type != pleg.SandboxRemoved {
			return true
		}
	}
	return false
}

// LastIteration returns when the loop last waited for an input; zero before the first
// time. It is at most a sync period old while the loop and the runtime are well.
func (l *Loop) LastIteration() time.Time {
	if ns := l.last.Load(); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

// Synced reports whether every source has delivered and the handler has received all
// of it. It lags behind by a sync period at most. It becomes false again only when a
// source is added.
func (l *Loop) Synced() bool { return l.synced.Load() }

// RuntimeError returns the error of the last check of the runtime; nil if it was well.
func (l *Loop) RuntimeError() error { return l.health.get() }
