package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podmanager"
	"github.com/kubeletkit/kubeletkit/podsync"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/volume"
)

// Options are what a [Node] is made of.
type Options struct {
	NodeName string
	RootDir  string // must belong to this node alone
	Runtime  runtime.Runtime
	Sources  []podconfig.Source
	Host     *runtime.Host
	Event    runtime.EventFunc
	Log      logr.Logger
}

// Node is a node agent: the parts that [kubeletkit.New] composes, wired by hand.
type Node struct {
	history *history.Memory
	config  *podconfig.Mux
	pods    *podmanager.Store
	pleg    *pleg.Evented
	status  *status.Store
	prober  *prober.Prober
	syncer  *podsync.Syncer
	workers *podworkers.Pool
	gc      *gc.ContainerGC
	images  *gc.ImageGC // nil if the runtime has no images
	loop    *syncloop.Loop
}

// New builds the parts. Each gets those before it. What must come from a later one is a
// function that is not called before Run.
func New(o Options) (_ *Node, err error) {
	n := &Node{pods: podmanager.New()}
	podsDir, rt, log := filepath.Join(o.RootDir, "pods"), o.Runtime, o.Log

	// What happened. It is in memory only.
	if n.history, err = history.New(history.Options{}); err != nil {
		return nil, err
	}

	// What is seen of the runtime.
	cache := runtime.NewCache(rt, runtime.CacheOptions{})
	n.pleg = pleg.NewEvented(rt, cache, pleg.EventedOptions{Options: pleg.Options{Record: n.history.Record, Logger: log.WithName("pleg")}})

	// What is to run.
	n.config, err = podconfig.New(podconfig.Options{NodeName: o.NodeName, Sources: o.Sources, Event: o.Event, Record: n.history.Record, Logger: log.WithName("config")})
	if err != nil {
		return nil, err
	}

	// What is done for one pod.
	n.status, err = status.New(status.Options{
		MayRun: func(uid types.UID) bool { return n.workers.State(uid).CouldHaveRunningContainers() },
		Logger: log.WithName("status"),
	})
	if err != nil {
		return nil, err
	}
	n.prober, err = prober.New(rt, cache, prober.Options{HostIPs: func() []string { return o.Host.IPs }, Event: o.Event, Record: n.history.Record, Logger: log.WithName("prober")})
	if err != nil {
		return nil, err
	}
	volumes, err := volume.New(volume.Options{Sources: volume.Sources{Allocatable: o.Host.Allocatable}, Event: o.Event, Logger: log.WithName("volume")})
	if err != nil {
		return nil, err
	}
	n.syncer, err = podsync.New(
		podsync.Deps{Runtime: rt, Cache: cache, Status: n.status, Volumes: volumes, Prober: n.prober},
		podsync.Options{PodsDir: podsDir, Host: o.Host, Event: o.Event, Record: n.history.Record, NetworkReady: n.networkReady, Logger: log.WithName("podsync")})
	if err != nil {
		return nil, err
	}

	// When it is done.
	n.workers, err = podworkers.New(n.syncer, cache, podworkers.Options{
		OnBegin:    func(pod runtime.PodRef) { n.pleg.Hold(pod.UID) }, // its worker reads it anyway
		OnEnd:      func(pod runtime.PodRef) { n.pleg.Release(pod.UID) },
		OnFinished: func(runtime.PodRef) { n.loop.PodEnded() },
		Event:      o.Event, Record: n.history.Record, Logger: log.WithName("workers"),
	})
	if err != nil {
		return nil, err
	}
	n.gc, err = gc.New(rt, n.gone, gc.Options{LogsDir: o.Host.PodLogsDir, Record: n.history.Record, Logger: log.WithName("gc")})
	if err != nil {
		return nil, err
	}

	if service, ok := runtime.Optional[runtime.ImageService](rt); ok {
		n.images, err = gc.NewImageGC(service, gc.ImageOptions{
			StateFile: filepath.Join(o.RootDir, "image_gc_state"), Event: o.Event, Logger: log.WithName("imagegc"),
		})
		if err != nil {
			return nil, err
		}
	}

	// Which pods may run.
	security := syncloop.SecurityOptions{}
	if r, ok := runtime.Optional[runtime.FeatureReporter](rt); ok {
		security.Features = r.Features
	}
	secure, err := syncloop.NewSecurity(security)
	if err != nil {
		return nil, err
	}

	// The loop that drives all of it.
	handler, err := syncloop.NewHandler(
		syncloop.HandlerDeps{Pods: n.pods, Workers: n.workers, Status: n.status, Runtime: rt, Prober: n.prober, Dirs: volumes},
		syncloop.HandlerOptions{
			PodsDir: podsDir, Admit: syncloop.Chain(secure, syncloop.Limits{MaxPods: 110}), Host: o.Host,
			Gone: n.gc.Kick, Event: o.Event, Record: n.history.Record, Logger: log.WithName("handler"),
		})
	if err != nil {
		return nil, err
	}
	n.loop, err = syncloop.New(
		syncloop.Deps{Handler: handler, Config: n.config, PLEG: n.pleg, Runtime: rt, Pods: n.pods, Probes: n.prober.Results()},
		syncloop.Options{
			Observe:     func(ev pleg.PodEvents) { n.prober.Notify(ev.Pod.UID) },
			ProbeResult: func(res runtime.ProbeResult) { n.syncer.RefreshStatus(res.Pod.UID) },
			Logger:      log.WithName("syncloop"),
		})
	return n, err
}

// Run runs all parts until ctx ends; the pods go on running.
func (n *Node) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	runs := []func(context.Context) error{
		n.status.Run, n.prober.Run, n.workers.Run, n.pleg.Run, n.gc.Run, n.config.Run, n.loop.Run,
	}
	runs = append(runs, func(ctx context.Context) error { // evicts pods for their storage
		return n.syncer.EvictForStorage(ctx, n.workers)
	})
	if n.images != nil {
		runs = append(runs, n.images.Run)
	}
	for _, run := range runs {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

// Pods returns the desired pods with their status.
func (n *Node) Pods() []*v1.Pod {
	var out []*v1.Pod
	for _, pod := range n.pods.Pods() {
		withStatus := *pod
		if s, ok := n.status.Get(pod.UID); ok {
			withStatus.Status = s
		}
		out = append(out, &withStatus)
	}
	return out
}

// gone reports whether the pod is not desired and has no worker.
func (n *Node) gone(uid types.UID) bool {
	if st := n.workers.State(uid); !st.Synced || st.Known() {
		return false
	}
	_, desired := n.pods.ByUID(uid)
	return !desired
}

// networkReady returns an error while only pods with the host's network can start.
func (n *Node) networkReady() error {
	if err := n.loop.RuntimeError(); errors.Is(err, runtime.ErrNetworkNotReady) {
		return err
	}
	return nil
}
