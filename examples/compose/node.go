package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/podconfig/podmanager"
	"github.com/kubeletkit/kubeletkit/podconfig/staticuid"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/podsync"
)

// Options are what a [Node] is made of.
type Options struct {
	NodeName string
	RootDir  string // must belong to this node alone
	Runtime  runtime.Runtime
	Sources  []podconfig.Source
	Host     *runtime.Host
	Objects  objects.Source    // the secrets and config maps of pods; nil: there are none
	Event    runtime.EventFunc // must not block or panic
	Log      logr.Logger
}

// Node is a node agent: the parts that [kubeletkit.New] composes, wired by hand.
type Node struct {
	runtime runtime.Runtime
	history *history.Memory
	config  *podconfig.Mux
	pods    *podmanager.Store
	pleg    *pleg.Evented
	status  *status.Store
	prober  *prober.Prober
	syncer  *podsync.Syncer
	workers *podworkers.Pool
	gc      *gc.ContainerGC
	imageGC *gc.ImageGC // nil if the runtime has no images
	handler *syncloop.PodHandler
	loop    *syncloop.Loop
}

// New builds the parts. Each gets those before it. What must come from a later one is a
// function that is not called before Run.
func New(o Options) (_ *Node, err error) {
	n := &Node{runtime: o.Runtime, pods: podmanager.New()}
	podsDir, rt, log := filepath.Join(o.RootDir, "pods"), o.Runtime, o.Log
	hostIPs := func() []string { return o.Host.IPs } // none while there is no route

	// What happened. Without a file it is in memory only.
	if n.history, err = history.New(history.Options{}); err != nil {
		return nil, err
	}
	// It does not block, nor does Event. So what the parts report is in order.
	observer := runtime.Observer{Logger: log, Event: o.Event, Record: n.history.Record, NonBlocking: true}

	// What is seen of the runtime.
	cache := runtime.NewCache(rt, runtime.CacheOptions{})
	n.pleg = pleg.NewEvented(rt, cache, pleg.EventedOptions{Options: pleg.Options{
		Observer: observer.Named("pleg")}})

	// What is to run.
	n.config, err = podconfig.New(podconfig.Options{
		NodeName: o.NodeName, Sources: o.Sources, StaticUID: staticuid.New(rt,
			staticuid.Options{Logger: log.WithName("config")}).UID,
		Observer: observer.Named("config"),
	})
	if err != nil {
		return nil, err
	}

	// What is done for one pod.
	n.status, err = status.New(status.Options{
		MayRun:   func(uid types.UID) bool { return n.workers.State(uid).CouldHaveRunningContainers() },
		Observer: observer.Named("status"),
	})
	if err != nil {
		return nil, err
	}
	n.prober, err = prober.New(rt, cache, prober.Options{HostIPs: hostIPs, Observer: observer.Named("prober")})
	if err != nil {
		return nil, err
	}
	volumes, err := volume.New(volume.Options{Sources: volume.Sources{Objects: o.Objects,
		Allocatable: o.Host.Allocatable}, Observer: observer.Named("volume")})
	if err != nil {
		return nil, err
	}
	puller, err := images.New(images.Options{Observer: observer.Named("images")})
	if err != nil {
		return nil, err
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
	n.syncer, err = podsync.New(
		podsync.Deps{Runtime: rt, Cache: cache, Status: n.status, Volumes: volumes, Images: puller, Prober: n.prober,
			Join: []lifecycle.Component{secure, syncloop.Limits{MaxPods: 110}}},
		podsync.Options{
			PodsDir: podsDir, Host: o.Host, HostIPs: hostIPs, Objects: o.Objects,
			Removed: func(uid types.UID) bool { // then its sandboxes are removed when it has ended
				pod, desired := n.pods.ByUID(uid)
				return !desired || pod.DeletionTimestamp != nil
			},
			ResizePending: func(uid types.UID) (v1.PodCondition, bool) { return n.handler.ResizePending(uid) },
			SpareStatic: slices.ContainsFunc(o.Sources,
				func(s podconfig.Source) bool { return s.Name() == podspec.SourceAPI }),
			NetworkReady: n.networkReady, Observer: observer.Named("podsync"),
		})
	if err != nil {
		return nil, err
	}

	// When it is done.
	n.workers, err = podworkers.New(n.syncer, cache, podworkers.Options{
		OnBegin: func(pod runtime.PodRef) { n.pleg.Hold(pod.UID) }, // its worker reads it anyway
		OnEnd:   func(pod runtime.PodRef) { n.pleg.Release(pod.UID) },
		OnFinished: func(pod runtime.PodRef) {
			n.loop.PodEnded()
			if n.removable(pod.UID) {
				n.gc.Kick()
			}
			n.status.PodFinished(pod)
		},
		Observer: observer.Named("workers"),
	})
	if err != nil {
		return nil, err
	}
	n.gc, err = gc.New(rt, n.removable, gc.Options{LogsDir: o.Host.PodLogsDir, Observer: observer.Named("gc")})
	if err != nil {
		return nil, err
	}

	if service, ok := runtime.Optional[runtime.ImageService](rt); ok {
		n.imageGC, err = gc.NewImageGC(service, gc.ImageOptions{
			StateFile: filepath.Join(o.RootDir, "image_gc_state"), Listed: puller.Listed,
			Observer: observer.Named("imagegc"),
		})
		if err != nil {
			return nil, err
		}
	}

	// The loop that drives all of it.
	n.handler, err = syncloop.NewHandler(
		syncloop.HandlerDeps{Pods: n.pods, Workers: n.workers, Status: n.status, Runtime: rt, Prober: n.prober,
			Steps: n.syncer.Steps()},
		syncloop.HandlerOptions{
			PodsDir: podsDir, Host: o.Host,
			Gone: n.gc.Kick, Observer: observer.Named("handler"),
		})
	if err != nil {
		return nil, err
	}
	n.loop, err = syncloop.New(
		syncloop.Deps{Handler: n.handler, Config: n.config, PLEG: n.pleg, Runtime: rt, Pods: n.pods,
			Prober: n.prober, Syncer: n.syncer, Objects: o.Objects, GC: n.gc, Cache: cache},
		syncloop.Options{Logger: log.WithName("syncloop")})
	return n, err
}

// Run runs all parts until ctx ends; the pods go on running.
func (n *Node) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	runs := []func(context.Context) error{
		n.history.Run, n.status.Run, n.prober.Run, n.workers.Run, n.pleg.Run, n.gc.Run, n.config.Run, n.loop.Run,
	}
	runs = append(runs, func(ctx context.Context) error { // evicts pods for their storage
		return n.syncer.Run(ctx, n.workers)
	})
	if n.imageGC != nil {
		runs = append(runs, n.imageGC.Run)
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

// removable reports whether what is left of the pod can be removed: it is not desired and has no
// worker, or it was deleted in the API and has ended.
func (n *Node) removable(uid types.UID) bool {
	st := n.workers.State(uid)
	if st.Finished && st.Deleted && !st.RestartRequested {
		return true
	}
	_, desired := n.pods.ByUID(uid)
	return st.Synced && !st.Known() && !desired
}

// Drain ends all pods, each in its own grace period, and returns when nothing runs. From its call on
// no pod is started.
func (n *Node) Drain(ctx context.Context) error {
	n.workers.Drain()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := n.endPods(ctx)
		if left == 0 && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// endPods has all pods ended that are not ending already, and returns how many still run.
func (n *Node) endPods(ctx context.Context) (left int, err error) {
	for _, pod := range n.pods.Pods() {
		switch st := n.workers.State(pod.UID); {
		case !st.Known() || st.Terminated() && !st.RestartRequested: // refused, or ended
			continue
		case !st.TerminationRequested() || st.RestartRequested:
			n.workers.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod, OnlyKnown: true,
				Kill: &podworkers.KillOptions{
					Status: status.Evicted(pod, "Terminated",
						"Pod was terminated in response to imminent node shutdown."),
				}})
		}
		left++
	}
	if left > 0 {
		return left, nil
	}
	listed, err := n.runtime.ListPods(ctx)
	for _, pod := range listed {
		if !pod.Running() {
			continue
		}
		left++
		if !n.workers.State(pod.UID).Known() { // no source names it
			n.workers.UpdatePod(podworkers.Update{Type: podworkers.Kill, Orphan: pod})
		}
	}
	return left, err
}

// networkReady returns an error while only pods with the host's network can start.
func (n *Node) networkReady() error {
	if err := n.loop.RuntimeError(); errors.Is(err, runtime.ErrNetworkNotReady) {
		return err
	}
	return nil
}
