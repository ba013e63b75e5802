package syncloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/podconfig/podmanager"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// defaultHousekeepingPeriod is kubelet's housekeepingPeriod.
	defaultHousekeepingPeriod = 2 * time.Second
	// livenessPeriod is the longest time without a round of an idle loop that makes progress, see
	// [Loop.LastIteration].
	livenessPeriod = 30 * time.Second
)

// retries are the pauses while the runtime or the PLEG is not healthy (kubelet: base and
// max of the back-off in syncLoop).
var retries = flow.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}

// Handler handles the inputs of the loop. Its methods are called from the goroutine of the loop, except
// ResizePending, and must not wait for a pod. [PodHandler] is the default.
type Handler interface {
	// Prepare reads the state of the runtime before the first input. It is called when the runtime has become
	// ready for the first time. If it returns an error, it is called again after a pause. No other
	// method is called before it has returned nil.
	Prepare(ctx context.Context) error
	// HandlePodAdditions handles pods that are new in the desired state, and pods that
	// are restored from the disk.
	HandlePodAdditions(pods []*v1.Pod)
	// HandlePodUpdates handles pods whose spec or metadata changed, or whose deletion was
	// requested.
	HandlePodUpdates(pods []*v1.Pod)
	// HandlePodRemoves handles pods that are not desired any more.
	HandlePodRemoves(pods []*v1.Pod)
	// HandlePodReconcile handles pods of which only the status has changed.
	HandlePodReconcile(pods []*v1.Pod)
	// HandlePodSyncs handles pods that something happened to in the runtime, such as the
	// exit of a container or a new probe result.
	HandlePodSyncs(pods []*v1.Pod)
	// HandlePodCleanups does the housekeeping. It is called only while all sources have
	// been seen. If it returns an error, it is called again at the next tick.
	HandlePodCleanups(ctx context.Context) error
	// CleanupUnderWay reports whether work that a cleanup has begun goes on beside the loop, so that another cleanup is
	// due soon.
	CleanupUnderWay() bool
	// Observe receives the events of each pod before they are handled, also if the
	// pod is not desired.
	Observe(ev pleg.PodEvents)
	// ResizePending returns the condition PodResizePending of a pod that has requested other
	// resources and did not get them (KEP-1287), and false if there is none. It is safe for concurrent
	// use, and does not block.
	ResizePending(uid types.UID) (v1.PodCondition, bool)
	// Stop ends the goroutines of the handler and waits for them. It is called when [Loop.Run] ends.
	Stop()
}

// Base is a [Handler] that does nothing. Implementations embed it, so that methods added later do not
// break them.
type Base struct{}

var _ Handler = Base{}

// Prepare implements [Handler].
func (Base) Prepare(context.Context) error { return nil }

// HandlePodAdditions implements [Handler].
func (Base) HandlePodAdditions([]*v1.Pod) {}

// HandlePodUpdates implements [Handler].
func (Base) HandlePodUpdates([]*v1.Pod) {}

// HandlePodRemoves implements [Handler].
func (Base) HandlePodRemoves([]*v1.Pod) {}

// HandlePodReconcile implements [Handler].
func (Base) HandlePodReconcile([]*v1.Pod) {}

// HandlePodSyncs implements [Handler].
func (Base) HandlePodSyncs([]*v1.Pod) {}

// HandlePodCleanups implements [Handler].
func (Base) HandlePodCleanups(context.Context) error { return nil }

// CleanupUnderWay implements [Handler].
func (Base) CleanupUnderWay() bool { return false }

// Observe implements [Handler].
func (Base) Observe(pleg.PodEvents) {}

// ResizePending implements [Handler].
func (Base) ResizePending(types.UID) (v1.PodCondition, bool) { return v1.PodCondition{}, false }

// Stop implements [Handler].
func (Base) Stop() {}

// Deps are the inputs of a [Loop], and the parts that it notifies. Handler, Config, PLEG, Runtime and Pods are
// required.
type Deps struct {
	Handler Handler
	Config  podconfig.Config
	PLEG    pleg.Generator
	Runtime runtime.Checker
	// Pods finds the desired pod that an event is about.
	Pods podmanager.Manager
	// Prober has the results of probes. nil: there are none.
	Prober prober.Manager
	// Syncer brings statuses up to date with the results of probes. nil: they are with the next sync of the pod.
	Syncer podworkers.Syncer
	// Objects has the secrets and config maps that pods refer to. When one changes, its pods are
	// synced. nil: there are none.
	Objects objects.Source
	// GC removes dead containers, by their statuses in Cache. nil: it is not notified.
	GC    gc.Collector
	Cache runtime.StatusCache
}

// Options are the settings of a [Loop]; the zero value is kubelet's.
type Options struct {
	// HousekeepingPeriod is the time between cleanups. When nothing has come from any
	// input for 30 s, the last cleanup has not failed, and no removal that a cleanup has begun
	// is under way, it is at least 30 s. Default 2 s.
	HousekeepingPeriod time.Duration
	// CheckPeriod is the time between checks of a healthy runtime. Default 5 s.
	CheckPeriod time.Duration
	// CheckTimeout bounds one check of the runtime. Default 10 s.
	CheckTimeout time.Duration
	// Logger receives failures and, at V(2), the inputs that the loop handles. Default: that of package slog.
	Logger logr.Logger
}

// Loop is the loop of a node agent. Make one with [New].
type Loop struct {
	deps Deps
	opts Options
	log  logr.Logger

	started atomic.Bool
	synced  atomic.Bool  // see Synced
	last    atomic.Int64 // see LastIteration; in Unix nanoseconds, 0 before the first
	health  *runtimeHealth
	// dependents has the pods whose objects have changed; nil without objects.
	dependents *objects.Dependents
	probes     <-chan runtime.ProbeResult // nil without probes
	// ended has room for one token: there is one when a pod has ended and soon has not
	// been set for it. Further tokens are dropped.
	ended flow.Signal

	// The rest belongs to the goroutine of Run.

	// housekeeping fires at housekeepingAt, when housekeeping is due.
	housekeeping   *time.Timer
	housekeepingAt time.Time
	// soon fires when housekeeping is due because pods have ended; nil if none have.
	soon <-chan time.Time
	// noNetwork means that the runtime had no pod network when it was checked last.
	noNetwork bool
	// lastInput is the time of the last input other than a tick. cleaned is the time of the
	// last cleanup that succeeded, zero if one has failed or was left out since.
	lastInput, cleaned time.Time
	// cleanupError is the text of the error of the last cleanup, which was logged; "" if it has succeeded.
	cleanupError string
}

// New returns a loop, or an error that names what is missing.
func New(deps Deps, opts Options) (*Loop, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
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
	setDefault(&opts.HousekeepingPeriod, defaultHousekeepingPeriod)
	setDefault(&opts.CheckPeriod, 5*time.Second)
	setDefault(&opts.CheckTimeout, 10*time.Second)
	l := &Loop{deps: deps, opts: opts, log: opts.Logger, health: newRuntimeHealth(), ended: flow.NewSignal()}
	if deps.Objects != nil {
		l.dependents = objects.NewDependents(deps.Objects, deps.Pods.Pods,
			objects.DependentsOptions{Logger: opts.Logger})
	}
	if deps.Prober != nil {
		l.probes = deps.Prober.Results()
	}
	return l, nil
}

func setDefault(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

// Run handles inputs until ctx ends, and then returns nil. It returns an error before
// that if an input is closed. A second call returns an error that wraps
// [runtime.ErrAlreadyRunning].
func (l *Loop) Run(ctx context.Context) error {
	if !l.started.CompareAndSwap(false, true) {
		return fmt.Errorf("syncloop: %w", runtime.ErrAlreadyRunning)
	}
	// Only the goroutine gets the derived context. When the caller's context ends, an
	// input may be closed before a derived context has ended, and closed checks ctx.
	watchCtx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before the wait
	wg.Go(func() { l.watchRuntime(watchCtx) })
	var changed <-chan struct{}
	if l.dependents != nil {
		wg.Go(func() { l.dependents.Run(watchCtx) })
		changed = l.dependents.Changed()
	}
	defer l.deps.Handler.Stop()

	liveness := time.NewTicker(livenessPeriod)
	defer liveness.Stop()
	l.housekeeping = time.NewTimer(l.opts.HousekeepingPeriod)
	l.housekeepingAt = time.Now().Add(l.opts.HousekeepingPeriod)
	defer l.housekeeping.Stop()

	prepared, failures := false, 0
	for ctx.Err() == nil {
		err := l.ready()
		if err == nil && !prepared {
			err = l.deps.Handler.Prepare(ctx)
			prepared = err == nil
		}
		if err != nil {
			failures++
			delay := retries.After(failures)
			l.log.V(2).Info("Skipping pod synchronization", "reason", err.Error(), "retryAfter", delay)
			if l.pause(ctx, delay) {
				failures = 0 // what is missing now is another thing
			}
			continue
		}
		failures = 0
		l.followNetwork()
		if err := l.syncLoopIteration(ctx, liveness.C, changed); err != nil {
			return err
		}
	}
	return nil
}

// ready returns an error while no input may be handled.
func (l *Loop) ready() error {
	if err := l.health.get(); err != nil && !errors.Is(err, runtime.ErrNetworkNotReady) {
		return err
	}
	return l.deps.PLEG.Healthy()
}

// followNetwork requests a sync of all pods if the pod network has become ready since the
// last call.
func (l *Loop) followNetwork() {
	before := l.noNetwork
	l.noNetwork = l.health.get() != nil // ready has excluded other errors
	if !before || l.noNetwork {
		return
	}
	l.deps.Handler.HandlePodSyncs(l.deps.Pods.Pods())
}

// pause returns after d, when ctx ends, or when the health of the runtime changes, which it reports.
func (l *Loop) pause(ctx context.Context, d time.Duration) (changed bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-l.health.changed:
		return true
	case <-t.C:
		return false
	}
}

// PodEnded reports that a pod has finished: nothing of it runs, and its worker has no
// call left to make. Housekeeping follows after 250 ms and removes what the pod left
// behind; pods that end meanwhile share it. PodEnded may be called from any goroutine
// and does not block.
func (l *Loop) PodEnded() {
	l.ended.Notify()
}

// endsDelay is how long housekeeping waits for more pods to end: it lists the pods of
// the runtime, which costs as much as the end of several.
const endsDelay = 250 * time.Millisecond

// quiet is the time without any input after which housekeeping becomes rare. From then on it is
// also the least time between two cleanups. A cleanup looks at all pods. Without an input, only
// two things can have changed since the cleanup before:
//
//  1. A worker has finished its pod after the last input. Then [Loop.PodEnded] is called, and a
//     cleanup follows.
//  2. The removal of a directory has ended. [Handler].CleanupUnderWay is true until then, and
//     housekeeping stays frequent.
const quiet = 30 * time.Second

// syncLoopIteration waits for one input and handles it. changed receives a value after objects have changed.
func (l *Loop) syncLoopIteration(ctx context.Context, liveness <-chan time.Time, changed <-chan struct{}) error {
	now := time.Now()
	l.last.Store(now.UnixNano())
	if synced := l.deps.Config.SourcesReady(); l.synced.Swap(synced) != synced {
		l.received(now) // the removal of a source that was not seen comes without a change
	}
	ended := l.ended
	if l.soon != nil {
		ended = nil // the token stays until soon has fired
	}
	input := true // other than a tick
	select {
	case <-ctx.Done():
	case <-l.health.changed:
		// Run checks the health before the next input.
	case change, ok := <-l.deps.Config.Changes():
		if !ok {
			return l.closed(ctx, "the stream of desired state")
		}
		l.handleChange(change)
	case ev, ok := <-l.deps.PLEG.Watch():
		if !ok {
			return l.closed(ctx, "the stream of runtime events")
		}
		l.handleEvents(ev)
	case res, ok := <-l.probes:
		if !ok {
			return l.closed(ctx, "the stream of probe results")
		}
		l.log.V(2).Info("Probe result", "pod", res.Pod, "container", res.ContainerID, "probe", res.Kind,
			"healthy", res.Healthy)
		if l.deps.Syncer != nil {
			l.deps.Syncer.RefreshStatus(res.Pod.UID)
		}
		l.sync(res.Pod.UID)
	case <-liveness:
		input = false
	case <-changed:
		input = l.syncDue()
	case <-ended:
		l.soon = time.After(endsDelay)
	case <-l.soon:
		l.soon = nil
		l.cleanup(ctx)
	case <-l.housekeeping.C:
		l.cleanup(ctx)
		l.cleanupIn(l.untilCleanup())
		return nil
	}
	if input {
		l.received(time.Now())
	}
	return nil
}

// received notes that there was an input. Housekeeping becomes frequent.
func (l *Loop) received(now time.Time) {
	l.lastInput = now
	if l.housekeepingAt.Sub(now) > l.opts.HousekeepingPeriod {
		l.cleanupIn(l.opts.HousekeepingPeriod)
	}
}

// untilCleanup returns the time from a cleanup to the next.
func (l *Loop) untilCleanup() time.Duration {
	if l.cleaned.IsZero() || time.Since(l.lastInput) < quiet || l.deps.Handler.CleanupUnderWay() {
		return l.opts.HousekeepingPeriod
	}
	return max(quiet, l.opts.HousekeepingPeriod)
}

// cleanupIn sets the time of the next housekeeping.
func (l *Loop) cleanupIn(d time.Duration) {
	l.housekeepingAt = time.Now().Add(d)
	l.housekeeping.Reset(d)
}

// syncDue requests a sync of the pods whose objects have changed, and reports whether there are any.
func (l *Loop) syncDue() bool {
	pods := l.dependents.Due()
	if len(pods) > 0 {
		l.deps.Handler.HandlePodSyncs(pods)
	}
	return len(pods) > 0
}

// closed returns the error for an input that was closed; nil if ctx has ended, because
// then the inputs end too.
func (l *Loop) closed(ctx context.Context, input string) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("syncloop: %s ended while the loop runs", input)
}

// handleEvents handles the runtime's events of one pod.
func (l *Loop) handleEvents(ev pleg.PodEvents) {
	if l.deps.Prober != nil {
		l.deps.Prober.Notify(ev.Pod.UID)
	}
	l.notifyCollector(ev)
	l.deps.Handler.Observe(ev)
	if needSync(ev) {
		l.sync(ev.Pod.UID)
	}
}

// notifyCollector notifies the collector of the events.
func (l *Loop) notifyCollector(ev pleg.PodEvents) {
	if l.deps.GC == nil {
		return
	}
	l.deps.GC.Changed()
	if l.deps.Cache == nil ||
		!slices.ContainsFunc(ev.Events, func(e pleg.Event) bool { return e.Type == pleg.ContainerDied }) {
		return
	}
	if status, ok := l.deps.Cache.Get(ev.Pod.UID); ok {
		l.deps.GC.CollectPod(status)
	}
}

// sync requests a sync of the pod, if it is desired.
func (l *Loop) sync(uid types.UID) {
	if pod, ok := l.deps.Pods.ByUID(uid); ok {
		l.deps.Handler.HandlePodSyncs([]*v1.Pod{pod})
	}
}

// cleanup does the housekeeping, if all sources have been seen.
func (l *Loop) cleanup(ctx context.Context) {
	if !l.deps.Config.SourcesReady() { // not l.synced: a source may have been added since
		l.cleaned = time.Time{}
		return
	}
	err := l.deps.Handler.HandlePodCleanups(ctx)
	if err == nil {
		l.cleaned, l.cleanupError = time.Now(), ""
		return
	}
	l.cleaned = time.Time{}
	switch text := err.Error(); {
	case ctx.Err() != nil:
	case text != l.cleanupError:
		l.cleanupError = text
		l.log.Error(err, "Housekeeping failed; it is tried again at each tick")
	default:
		l.log.V(2).Info("Housekeeping failed again", "err", text)
	}
}

// handleChange handles a change of the desired pods.
func (l *Loop) handleChange(change podconfig.Change) {
	h := l.deps.Handler
	if len(change.Pods) == 0 {
		return // a source without pods has been seen
	}
	l.log.V(2).Info("Desired state changed", "op", change.Op, "source", change.Source, "pods", len(change.Pods))
	switch change.Op {
	case podconfig.Add, podconfig.Restore:
		// The handler does not distinguish them: SourcesReady is false until the source of a
		// restored pod has been seen.
		h.HandlePodAdditions(change.Pods)
	case podconfig.Update, podconfig.Delete:
		// The pods of a Delete have a deletion timestamp.
		h.HandlePodUpdates(change.Pods)
	case podconfig.Remove:
		h.HandlePodRemoves(change.Pods)
	case podconfig.Reconcile:
		h.HandlePodReconcile(change.Pods)
	default:
		l.log.Error(nil, "Ignoring a change of an unknown kind", "op", change.Op, "source", change.Source)
	}
}

// needSync reports whether a pod must be synced because of the events. Removals of
// containers and sandboxes need none.
func needSync(ev pleg.PodEvents) bool {
	for _, e := range ev.Events {
		if e.Type != pleg.ContainerRemoved && e.Type != pleg.SandboxRemoved {
			return true
		}
	}
	return false
}

// LastIteration returns the time at which the loop last began to wait for an input; zero
// before the first. While the loop makes progress and the runtime is ready, that was at
// most 30 s ago.
func (l *Loop) LastIteration() time.Time {
	if ns := l.last.Load(); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

// Synced reports whether all sources have been seen and the handler has received their
// pods. It becomes false again only when a source is added or removed.
func (l *Loop) Synced() bool { return l.synced.Load() && l.deps.Config.SourcesReady() }

// RuntimeError returns the error of the last check of the runtime; nil if the runtime is
// ready. Before the first check it is an error too.
func (l *Loop) RuntimeError() error { return l.health.get() }

// RuntimeErrorWithin is like [Loop.RuntimeError], except that a check to which the runtime gave no
// answer counts only when the last answer is older than the duration. Until then that answer counts.
func (l *Loop) RuntimeErrorWithin(patience time.Duration) error { return l.health.within(patience) }
