package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/podmanager"
	"github.com/kubeletkit/kubeletkit/podsync"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/volume"
)

// minLoopStale is how old the last round of the loop may be before the agent
// counts as unhealthy, at least (kubelet: minimum of SyncLoopHealthCheck).
const minLoopStale = 5 * time.Minute

// Agent is a node agent. Its methods are safe for concurrent use.
type Agent struct {
	opts    Options
	log     logr.Logger
	started atomic.Bool

	cache   *runtime.Cache
	mux     *podconfig.Mux
	pods    *podmanager.Manager
	pleg    pleg.Generator
	workers *podworkers.Workers
	status  *status.Manager
	prober  *prober.Manager
	gc      *gc.Collector
	loop    *syncloop.Loop
	objects *objects.Dependents
}

// New composes an agent. Its error names everything that is wrong with the
// options. It starts nothing; but for Options.Host being nil it does no I/O.
func New(opts Options) (*Agent, error) {
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("kubeletkit: %w", err)
	}
	host, err := hostFacts(opts)
	if err != nil {
		return nil, fmt.Errorf("kubeletkit: learning about the host: %w", err)
	}
	opts.PodLogsDir = host.PodLogsDir
	a := &Agent{opts: opts, log: opts.Logger, pods: podmanager.New()}
	if err := a.build(host, filepath.Join(opts.RootDir, "pods")); err != nil {
		return nil, fmt.Errorf("kubeletkit: %w", err)
	}
	return a, nil
}

// hostFacts completes what is known of the host with what the options say.
func hostFacts(opts Options) (*runtime.Host, error) {
	h := opts.Host
	if h == nil {
		var err error
		if h, err = DetectHost(); err != nil {
			return nil, err
		}
	}
	facts := *h
	if facts.NodeName == "" {
		facts.NodeName = opts.NodeName
	}
	if facts.PodLogsDir == "" {
		facts.PodLogsDir = opts.PodLogsDir
	}
	return &facts, nil
}

// build makes the parts and joins them.
func (a *Agent) build(host *runtime.Host, podsDir string) error {
	opts, rt := a.opts, a.opts.Runtime
	event := opts.Event
	if event == nil {
		event = func(e runtime.Event) {
			a.log.Info("Event", "pod", e.Pod, "path", e.FieldPath, "type", e.Type, "reason", e.Reason, "message", e.Message, "count", e.Count)
		}
	}
	event = runtime.MergeEvents(event)
	cache := opts.Cache
	if cache == nil {
		cache = runtime.NewCache(rt, runtime.CacheOptions{})
	}
	a.cache = cache
	var (
		source  = opts.Objects
		kept    syncloop.Checkpoint
		restore func(context.Context) []*v1.Pod
	)
	if opts.Checkpoint != nil {
		kept, restore = opts.Checkpoint, opts.Checkpoint.Load
		if source != nil {
			source = opts.Checkpoint.Objects(source)
		}
	}
	if a.pleg = opts.PLEG; a.pleg == nil {
		a.pleg = pleg.NewEvented(rt, cache, pleg.EventedOptions{Options: pleg.Options{Logger: a.named("pleg")}})
	}
	var err error
	if a.mux, err = podconfig.New(podconfig.Options{NodeName: opts.NodeName, Sources: opts.Sources, Restore: restore, Event: event, Logger: a.named("config")}); err != nil {
		return err
	}
	if a.status, err = status.New(status.Options{
		Sink:   opts.StatusSink,
		MayRun: func(uid types.UID) bool { return a.workers.State(uid).CouldHaveRunningContainers() },
		Logger: a.named("status"),
	}); err != nil {
		return err
	}
	if a.prober, err = prober.New(rt, cache, prober.Options{HostIP: first(host.IPs), Logger: a.named("prober")}); err != nil {
		return err
	}
	volumes, err := volume.New(volume.Options{Logger: a.named("volume")})
	if err != nil {
		return err
	}
	syncer, err := podsync.New(
		podsync.Deps{Runtime: rt, Cache: cache, Status: a.status, Volumes: volumes, Prober: a.prober},
		podsync.Options{PodsDir: podsDir, Host: host, Objects: source, PullSecrets: opts.PullSecrets, NetworkReady: a.networkReady, Event: event, Logger: a.named("podsync")})
	if err != nil {
		return err
	}
	if a.workers, err = podworkers.New(syncer, cache, a.workerOptions()); err != nil {
		return err
	}
	if a.gc, err = gc.New(rt, a.gone, gc.Options{Policy: opts.GC, LogsDir: host.PodLogsDir, Logger: a.named("gc")}); err != nil {
		return err
	}
	handler, err := syncloop.NewHandler(
		syncloop.HandlerDeps{Pods: a.pods, Workers: a.workers, Status: a.status, Runtime: rt, Prober: a.prober, Dirs: volumes, Checkpoint: kept},
		syncloop.HandlerOptions{PodsDir: podsDir, Admit: a.opts.Limits, Host: host, Gone: a.gc.Kick, Event: event, Logger: a.named("handler")})
	if err != nil {
		return err
	}
	a.objects = objects.NewDependents(source, a.pods, objects.DependentsOptions{Logger: a.named("objects")})
	a.loop, err = syncloop.New(
		syncloop.Deps{Handler: handler, Config: a.mux, PLEG: a.pleg, Runtime: a.checker(rt), Pods: a.pods, Probes: a.prober.Results()},
		syncloop.Options{Due: a.objects.Due, Logger: a.named("syncloop"), Observe: func(ev pleg.PodEvents) {
			handler.Observe(ev)
			a.prober.Notify(ev.Pod.UID)
		}})
	return err
}

// checker has the PLEG look when the runtime turns out not to answer: one that lives on
// events hears nothing of that.
func (a *Agent) checker(rt runtime.Runtime) runtime.Checker {
	g, ok := a.pleg.(interface{ Relist() })
	if !ok {
		return rt
	}
	return checkFunc(func(ctx context.Context) error {
		err := rt.Check(ctx)
		if err != nil && !errors.Is(err, runtime.ErrNetworkNotReady) {
			g.Relist()
		}
		return err
	})
}

type checkFunc func(ctx context.Context) error

func (f checkFunc) Check(ctx context.Context) error { return f(ctx) }

// holder is a PLEG that leaves pods alone while they are being changed; pleg.Evented is
// one.
type holder interface {
	Hold(uid types.UID)
	Release(uid types.UID)
}

func (a *Agent) workerOptions() podworkers.Options {
	opts := podworkers.Options{
		ResyncInterval: a.opts.SyncFrequency, Logger: a.named("workers"),
		OnFinished: func(runtime.PodRef) { a.loop.PodEnded() },
	}
	if h, ok := a.pleg.(holder); ok {
		opts.OnBegin = func(pod runtime.PodRef) { h.Hold(pod.UID) }
		opts.OnEnd = func(pod runtime.PodRef) { h.Release(pod.UID) }
	}
	return opts
}

func (a *Agent) named(part string) logr.Logger { return a.log.WithName(part) }

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// Run runs the agent until the context ends, and then returns nil, with all that
// it started joined and the pods left running. It returns early with an error if
// a part fails for good, or if another agent uses the root or the logs directory.
func (a *Agent) Run(ctx context.Context) error {
	if !a.started.CompareAndSwap(false, true) {
		return runtime.ErrAlreadyRunning
	}
	unlock, err := lockRoot(a.opts.RootDir)
	if err != nil {
		return fmt.Errorf("kubeletkit: %w", err)
	}
	defer unlock()
	unlockLogs, err := lockLogs(a.opts.PodLogsDir)
	if err != nil {
		return fmt.Errorf("kubeletkit: %w", err)
	}
	defer unlockLogs()

	a.log.Info("Agent starts", "node", a.opts.NodeName, "rootDir", a.opts.RootDir, "podLogsDir", a.opts.PodLogsDir)
	stopCheckpoint := a.runCheckpoint(ctx)
	g, gctx := errgroup.WithContext(ctx)
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"status manager", a.status.Run},
		{"prober", a.prober.Run},
		{"pod workers", a.workers.Run},
		{"PLEG", a.pleg.Run},
		{"garbage collector", a.gc.Run},
		{"watch of objects", a.objects.Run},
		{"pod configuration", a.mux.Run},
		{"sync loop", a.loop.Run},
	} {
		g.Go(func() error {
			err := part.run(gctx)
			switch {
			case gctx.Err() != nil:
				return nil // asked to stop, or another part failed first
			case err == nil:
				return fmt.Errorf("kubeletkit: the %s ended by itself", part.name)
			default:
				return fmt.Errorf("kubeletkit: the %s failed: %w", part.name, err)
			}
		})
	}
	err = errors.Join(g.Wait(), stopCheckpoint())
	a.log.Info("Agent has stopped; its pods go on running")
	return err
}

// runCheckpoint runs the store, if there is one, until the function that it returns is
// called: it outlives those who have something kept, so that all of it is written.
func (a *Agent) runCheckpoint(ctx context.Context) (stop func() error) {
	if a.opts.Checkpoint == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1) // one value, of the one goroutine
	go func() { ended <- a.opts.Checkpoint.Run(ctx) }()
	return func() error {
		cancel()
		if err := <-ended; err != nil {
			return fmt.Errorf("kubeletkit: the checkpoint store failed: %w", err)
		}
		return nil
	}
}

// AddSource adds a source of pods, also while the agent runs. Until it has been
// heard, the absence of a pod means nothing again, and nothing is cleaned up. The
// errors are those of [podconfig.Mux.Add].
func (a *Agent) AddSource(s podconfig.Source) error { return a.mux.Add(s) }

// RemoveSource removes the source of that name and its pods, and reports whether there
// was one. It returns when the source has ended; the pods end in their own time.
func (a *Agent) RemoveSource(name string) bool { return a.mux.Remove(name) }

// Pods returns the desired pods with their current status. The pods are copies
// in so far as their status is; specs are shared and must not be changed.
func (a *Agent) Pods() []*v1.Pod {
	desired := a.pods.Pods()
	out := make([]*v1.Pod, len(desired))
	for i, pod := range desired {
		withStatus := *pod
		if s, ok := a.status.Get(pod.UID); ok {
			withStatus.Status = s
		}
		out[i] = &withStatus
	}
	return out
}

// Healthy returns an error if the loop has not gone round for twice the sync
// frequency, and at least 5 minutes, which is also so when the runtime has been
// away for that long.
func (a *Agent) Healthy() error {
	last := a.loop.LastIteration()
	if last.IsZero() {
		return nil // still starting
	}
	if stale := time.Since(last); stale > max(2*a.opts.SyncFrequency, minLoopStale) {
		return fmt.Errorf("the sync loop last went round %s ago", stale.Round(time.Second))
	}
	return nil
}

// Synced reports whether every source has said which pods it wants, and all of
// them have been taken in: [Agent.Pods] has them.
func (a *Agent) Synced() bool { return a.loop.Synced() }

// gone reports whether nobody wants the pod and no worker is concerned with it.
func (a *Agent) gone(uid types.UID) bool {
	// Before the first housekeeping a pod may be unknown because it is not yet
	// delivered, or is being taken in.
	if st := a.workers.State(uid); !st.Synced || st.Known() {
		return false
	}
	_, desired := a.pods.ByUID(uid)
	return !desired
}

// networkReady tells whether pods with a network of their own can be started.
func (a *Agent) networkReady() error {
	if err := a.loop.RuntimeError(); errors.Is(err, runtime.ErrNetworkNotReady) {
		return err
	}
	return nil
}
