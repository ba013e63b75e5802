package kubeletkit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
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

// New composes an agent. Its error joins everything that is wrong with the options. It
// starts nothing, and does no I/O unless Options.Host is nil.
func New(opts Options) (*Agent, error) {
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("kubeletkit: %w", err)
	}
	host, err := hostFacts(opts)
	if err != nil {
		return nil, fmt.Errorf("kubeletkit: detecting the host: %w", err)
	}
	opts.Observe.Logger = logging.OrDefault(opts.Observe.Logger)
	if opts.Join, err = lifecycle.Sort(opts.Join...); err != nil {
		return nil, fmt.Errorf("kubeletkit: Options.Join: %w", err)
	}
	a := &Agent{opts: opts, log: opts.Observe.Logger}
	if err := a.compose(host, hostIPs(opts)); err != nil {
		return nil, fmt.Errorf("kubeletkit: %w", err)
	}
	return a, nil
}

// compose builds the parts in the order of [Parts], and the loop over them.
// examples/compose does the same by hand.
func (a *Agent) compose(host *runtime.Host, hostIPs func() []string) error {
	p := &a.parts
	*p = Parts{
		Runtime: a.opts.Runtime, Host: host, HostIPs: hostIPs, PodsDir: filepath.Join(a.opts.RootDir, "pods"),
		Observer: runtime.Observer{Logger: a.log, Event: a.eventHook(),
			Measure: observe(a, "Options.Observe.Measure", a.opts.Observe.Measure), NonBlocking: true},
		NetworkReady: a.networkReady, Gone: a.removable,
		// The workers are built after the parts that call this, and none calls it before Run.
		MayRun: func(uid types.UID) bool { return p.PodWorkers.State(uid).CouldHaveRunningContainers() },
	}
	for _, build := range []func(p *Parts) error{
		a.buildStores, a.buildHistory, a.joinComponents, a.buildRuntimeView, a.buildDesired, a.buildStatus,
		a.buildPodSync, a.buildWorkers, a.buildGC, a.buildImageGC, a.buildLoop,
	} {
		if err := build(p); err != nil {
			return err
		}
	}
	a.made.Store(true)
	return nil
}

// eventHook passes events on to the options: each one to EveryEvent, and with repeats merged
// to Event, or by default to the log.
func (a *Agent) eventHook() runtime.EventFunc {
	event := logEvents(a.log)
	if hook := a.opts.Observe.Event; hook != nil {
		event = observe(a, "Options.Observe.Event", hook)
	}
	every, merged := observe(a, "Options.Observe.EveryEvent", a.opts.Observe.EveryEvent), runtime.MergeEvents(event)
	return func(e runtime.Event) {
		every.Emit(e)
		merged(e)
	}
}

// observe returns a function that never blocks, and queues calls of the hook.
func observe[F ~func(T), T any](a *Agent, name string, hook F) F {
	f, observer := flow.Observe(name, hook, a.log)
	a.observers = append(a.observers, observer)
	return f
}

func (a *Agent) buildStores(p *Parts) (err error) {
	o := a.opts.Override
	if p.Checkpoint, err = choose("Checkpoint", o.Checkpoint, a.opts.Checkpoint, p); err != nil {
		return err
	}
	if p.Objects = a.opts.API.Objects; p.Objects != nil && p.Checkpoint != nil {
		p.Objects = p.Checkpoint.Objects(p.Objects)
	}
	p.Objects, err = choose("Objects", o.Objects, p.Objects, p)
	return err
}

func (a *Agent) buildHistory(p *Parts) error {
	opts := a.opts.Observe.History
	if opts.File == "" && p.Checkpoint != nil {
		opts.File = filepath.Join(a.opts.RootDir, "history")
	}
	if opts.Logger.GetSink() == nil {
		opts.Logger = a.named("history")
	}
	store, err := history.New(opts)
	if err != nil {
		return err
	}
	p.History, err = choose[history.Store]("History", a.opts.Override.History, store, p)
	p.Observer.Record = a.recordHook(p.History)
	return err
}

// recordHook returns the method Record of the history. That of a Memory never blocks; any other is called like a hook.
func (a *Agent) recordHook(h history.Store) runtime.RecordFunc {
	switch h := h.(type) {
	case history.None:
		return nil
	case *history.Memory:
		return h.Record
	}
	return observe(a, "History.Record", runtime.RecordFunc(h.Record))
}

// joinComponents gives the components of the options their nodes.
func (a *Agent) joinComponents(p *Parts) error {
	for _, c := range a.opts.Join {
		j, ok := c.(lifecycle.Joiner)
		if !ok {
			continue
		}
		if err := j.Join(&node{agent: a, log: a.named(c.Name())}); err != nil {
			return fmt.Errorf("Options.Join: component %q: %w", c.Name(), err)
		}
	}
	p.Inspector = lifecycle.Inspector(p.Runtime, a.opts.Join...)
	return nil
}

// buildRuntimeView builds the parts that hold the state of the runtime.
func (a *Agent) buildRuntimeView(p *Parts) (err error) {
	o := a.opts.Override
	p.CacheOptions, p.PLEGOptions = a.opts.Cache, a.opts.PLEG
	if p.Cache, err = choose[runtime.StatusCache]("Cache", o.Cache, runtime.NewCache(p.Inspector, p.CacheOptions),
		p); err != nil {
		return err
	}
	p.PLEGOptions.Observer = p.Observer.Named("pleg")
	p.PLEG, err = choose[pleg.Generator]("PLEG", o.PLEG, pleg.NewEvented(p.Runtime, p.Cache, p.PLEGOptions), p)
	return err
}

// buildDesired builds the parts that hold the desired pods.
func (a *Agent) buildDesired(p *Parts) error {
	o := a.opts.Override
	var restore func(context.Context) []*v1.Pod
	static := staticuid.Options{Logger: a.named("config")}
	if p.Checkpoint != nil {
		static.States = p.Checkpoint
	}
	uids := staticuid.New(p.Runtime, static)
	if p.Checkpoint != nil {
		restore = func(ctx context.Context) []*v1.Pod { return uids.Restored(ctx, p.Checkpoint.Load(ctx)) }
	}
	mux, err := podconfig.New(podconfig.Options{
		NodeName: a.opts.NodeName, Sources: a.opts.Sources, Restore: restore, StaticUID: uids.UID,
		Observer: p.Observer.Named("config"),
	})
	if err != nil {
		return err
	}
	if p.PodConfig, err = choose[podconfig.Config]("PodConfig", o.PodConfig, mux, p); err != nil {
		return err
	}
	p.PodManager, err = choose[podmanager.Manager]("PodManager", o.PodManager, podmanager.New(), p)
	return err
}

func (a *Agent) buildStatus(p *Parts) error {
	if p.StatusSink = a.opts.StatusSink; p.StatusSink != nil && p.Checkpoint != nil {
		p.StatusSink = endingSink{p.StatusSink, func(pod runtime.PodRef) {
			if a.gone(pod.UID) { // otherwise there is a later pod of the UID, whose end is to be reported too
				p.Checkpoint.EndDelivered(pod.UID)
			}
		}}
	}
	p.StatusOptions = a.opts.Status
	p.StatusOptions.Sink, p.StatusOptions.MayRun = p.StatusSink, p.MayRun
	p.StatusOptions.Observer = p.Observer.Named("status")
	p.StatusOptions.Changed = a.statusChanged(p.StatusOptions.Changed)
	store, err := status.New(p.StatusOptions)
	if err != nil {
		return err
	}
	p.Status, err = choose[status.Manager]("Status", a.opts.Override.Status, store, p)
	return err
}

// statusChanged returns a function that calls each component that is a [lifecycle.StatusHandler], and that of the
// options.
func (a *Agent) statusChanged(changed func(types.UID)) func(types.UID) {
	var handlers []lifecycle.StatusHandler
	for _, c := range a.opts.Join {
		if h, ok := c.(lifecycle.StatusHandler); ok {
			handlers = append(handlers, h)
		}
	}
	if len(handlers) == 0 {
		return changed
	}
	return func(uid types.UID) {
		for _, h := range handlers {
			if err := runtime.Recover(func() error { h.StatusChanged(uid); return nil }); err != nil {
				a.log.Error(err, "A component that follows the status of pods has panicked", "component", h.Name())
			}
		}
		if changed != nil {
			changed(uid)
		}
	}
}

// withoutEnds is a checkpoint that keeps no ends, since no sink receives them.
type withoutEnds struct{ checkpoint.Store }

func (withoutEnds) KeepEnd(runtime.PodRef) {}

func (withoutEnds) DueEnds(func(types.UID) bool) []runtime.PodRef { return nil }

// endingSink calls delivered when the sink has accepted the end of a pod, or has answered that
// it has no such pod.
type endingSink struct {
	status.Sink
	delivered func(pod runtime.PodRef)
}

// PodGone implements [status.Sink].
func (s endingSink) PodGone(ctx context.Context, pod runtime.PodRef, last *v1.PodStatus) error {
	err := s.Sink.PodGone(ctx, pod, last)
	if err == nil || errors.Is(err, status.ErrGone) {
		s.delivered(pod)
	}
	return err
}

// buildPodSync builds what does the work on one pod.
func (a *Agent) buildPodSync(p *Parts) error {
	o := a.opts.Override
	p.ProberOptions = a.opts.Prober
	p.ProberOptions.HostIPs, p.ProberOptions.States = p.HostIPs, nil
	p.ProberOptions.Observer = p.Observer.Named("prober")
	if p.Checkpoint != nil {
		p.ProberOptions.States = p.Checkpoint
	}
	probes, err := prober.New(p.Runtime, p.Cache, p.ProberOptions)
	if err != nil {
		return err
	}
	if p.Prober, err = choose[prober.Manager]("Prober", o.Prober, probes, p); err != nil {
		return err
	}
	p.VolumesOptions = a.opts.Volumes
	p.VolumesOptions.Sources = volume.Sources{Objects: p.Objects, Tokens: a.opts.API.Tokens,
		TrustBundles: a.opts.API.TrustBundles, PodCertificates: a.opts.API.PodCertificates, Claims: a.opts.API.Claims,
		NodeLabels: a.opts.API.NodeLabels, Allocatable: p.Host.Allocatable, NodeAllocatable: a.opts.API.NodeAllocatable,
		FileLabel: p.Host.FileLabel}
	p.VolumesOptions.Observer = p.Observer.Named("volume")
	volumes, err := volume.New(p.VolumesOptions)
	if err != nil {
		return err
	}
	if p.Volumes, err = choose[volume.Manager]("Volumes", o.Volumes, volumes, p); err != nil {
		return err
	}
	if err := a.buildImages(p); err != nil {
		return err
	}
	join, err := a.components(p)
	if err != nil {
		return err
	}
	syncer, err := podsync.New(
		podsync.Deps{Runtime: p.Runtime, Cache: p.Cache, Status: p.Status, Volumes: p.Volumes, Images: p.Images,
			Prober: p.Prober, Join: join},
		podsync.Options{
			PodsDir: p.PodsDir, Host: p.Host, HostIPs: p.HostIPs, Allocatable: a.opts.API.NodeAllocatable,
			Objects: p.Objects, PullSecrets: a.opts.API.PullSecrets, ServiceEnv: a.opts.API.ServiceEnv,
			Removed: func(uid types.UID) bool {
				// The sandboxes of a pod that is deleted in the API are removed when it has finished,
				// see removable.
				pod, desired := p.PodManager.ByUID(uid)
				return !desired || pod.DeletionTimestamp != nil
			},
			// The handler is built after the parts that call this.
			ResizePending: func(uid types.UID) (v1.PodCondition, bool) { return p.SyncHandler.ResizePending(uid) },
			SpareStatic: slices.ContainsFunc(a.opts.Sources,
				func(s podconfig.Source) bool { return s.Name() == podspec.SourceAPI }),
			NoStorageEviction: a.opts.NoStorageEviction,
			NetworkReady:      p.NetworkReady, Observer: p.Observer.Named("podsync"),
		})
	if err != nil {
		return err
	}
	p.Steps = syncer.Steps()
	p.PodSyncer, err = choose[podworkers.Syncer]("PodSyncer", o.PodSyncer, syncer, p)
	return err
}

func (a *Agent) buildImages(p *Parts) error {
	p.ImagesOptions = a.opts.Images
	p.ImagesOptions.Observer = p.Observer.Named("images")
	puller, err := images.New(p.ImagesOptions)
	if err != nil {
		return err
	}
	p.Images, err = choose[images.Manager]("Images", a.opts.Override.Images, puller, p)
	return err
}

// components returns the components that join the lives of pods after those of the pod syncer: the admission of the
// agent, and those of the options.
func (a *Agent) components(p *Parts) ([]lifecycle.Component, error) {
	security := syncloop.SecurityOptions{AllowedUnsafeSysctls: a.opts.Admission.AllowedUnsafeSysctls}
	if r, ok := runtime.Optional[runtime.FeatureReporter](p.Runtime); ok {
		security.Features = r.Features
	}
	secure, err := syncloop.NewSecurity(security)
	if err != nil {
		return nil, err
	}
	return append([]lifecycle.Component{secure, a.opts.Admission.Limits}, a.opts.Join...), nil
}

func (a *Agent) buildWorkers(p *Parts) error {
	p.WorkersOptions = a.opts.Workers
	p.WorkersOptions.OnBegin = func(pod runtime.PodRef) { p.PLEG.Hold(pod.UID) }
	p.WorkersOptions.OnEnd = func(pod runtime.PodRef) { p.PLEG.Release(pod.UID) }
	p.WorkersOptions.OnFinished = func(pod runtime.PodRef) {
		a.loop.PodEnded()
		p.Status.PodFinished(pod)
		if a.removable(pod.UID) { // as long as it is desired, no cleanup has it collected
			a.parts.GC.Kick()
		}
	}
	p.WorkersOptions.Observer = p.Observer.Named("workers")
	workers, err := podworkers.New(p.PodSyncer, p.Cache, p.WorkersOptions)
	if err != nil {
		return err
	}
	if p.PodWorkers, err = choose[podworkers.Workers]("PodWorkers", a.opts.Override.PodWorkers,
		workers, p); err != nil {
		return err
	}
	return nil
}

func (a *Agent) buildGC(p *Parts) error {
	p.GCOptions = a.opts.GC
	p.GCOptions.LogsDir, p.GCOptions.Ended, p.GCOptions.Cgroups = p.Host.PodLogsDir, a.ended, a.cgroups()
	p.GCOptions.LogLinksDir = cmp.Or(a.opts.GC.LogLinksDir, logLinksDir(p.Host.PodLogsDir))
	p.GCOptions.Observer = p.Observer.Named("gc")
	collector, err := gc.New(p.Runtime, p.Gone, p.GCOptions)
	if err != nil {
		return err
	}
	p.GC, err = choose[gc.Collector]("GC", a.opts.Override.GC, collector, p)
	return err
}

// cgroups returns what removes the cgroups of pods that are gone; nil if nothing does.
func (a *Agent) cgroups() gc.Cgroups {
	if a.opts.GC.Cgroups != nil {
		return a.opts.GC.Cgroups
	}
	for _, c := range a.opts.Join {
		if cgroups, ok := c.(gc.Cgroups); ok {
			return cgroups
		}
	}
	return nil
}

// buildImageGC builds the collector of images. If the runtime has no [runtime.ImageService], there
// is none, and def stays a nil interface: a nil pointer in it would not be equal to nil.
func (a *Agent) buildImageGC(p *Parts) (err error) {
	var def gc.ImageCollector
	if service, ok := runtime.Optional[runtime.ImageService](p.Runtime); ok {
		p.ImageGCOptions = a.opts.ImageGC
		p.ImageGCOptions.StateFile = filepath.Join(a.opts.RootDir, imageGCState)
		p.ImageGCOptions.Listed, p.ImageGCOptions.Observer = p.Images.Listed, p.Observer.Named("imagegc")
		if def, err = gc.NewImageGC(service, p.ImageGCOptions); err != nil {
			return err
		}
	}
	p.ImageGC, err = choose("ImageGC", a.opts.Override.ImageGC, def, p)
	return err
}

// imageGCState is the file in the root directory with the times of use of images.
const imageGCState = "image_gc_state"

func (a *Agent) buildLoop(p *Parts) (err error) {
	o := a.opts.Override
	if p.Admission, err = choose[lifecycle.Admitter]("Admission", o.Admission, p.Steps, p); err != nil {
		return err
	}
	kept := p.Checkpoint
	if kept != nil && p.StatusSink == nil {
		kept = withoutEnds{kept}
	}
	handler, err := syncloop.NewHandler(
		syncloop.HandlerDeps{
			Pods: p.PodManager, Workers: p.PodWorkers, Status: p.Status, Runtime: p.Runtime,
			Steps: p.Steps, Prober: p.Prober, Checkpoint: kept,
		},
		syncloop.HandlerOptions{
			PodsDir: p.PodsDir, Admit: p.Admission, Host: p.Host,
			RecreateUpdated: a.opts.RecreateUpdated, Gone: p.GC.Kick, Observer: p.Observer.Named("handler"),
		})
	if err != nil {
		return err
	}
	if p.SyncHandler, err = choose[syncloop.Handler]("SyncHandler", o.SyncHandler, handler, p); err != nil {
		return err
	}
	a.loop, err = syncloop.New(
		syncloop.Deps{
			Handler: p.SyncHandler, Config: p.PodConfig, PLEG: p.PLEG, Runtime: p.Runtime, Pods: p.PodManager,
			Prober: p.Prober, Syncer: p.PodSyncer, Objects: p.Objects, GC: p.GC, Cache: p.Cache,
		},
		syncloop.Options{Logger: a.named("syncloop")})
	return err
}

// logParts logs once which parts are not the defaults, and what the agent does without because the runtime has no such
// ability.
func (a *Agent) logParts() {
	o := reflect.ValueOf(a.opts.Override)
	for i := range o.NumField() {
		if !o.Field(i).IsNil() {
			a.log.V(1).Info("Part is replaced or wrapped", "part", o.Type().Field(i).Name)
		}
	}
	missing := func(have bool, ability, effect string) {
		if !have {
			a.log.Info("Runtime lacks an ability; if it wraps a runtime that has it, give it the method Unwrap() any",
				"interface", ability, "effect", effect)
		}
	}
	rt := a.parts.Runtime
	missing(implements[runtime.EventSource](rt), "runtime.EventSource", "the runtime is relisted every second")
	missing(implements[runtime.ImageService](rt), "runtime.ImageService", "images are not collected")
	missing(implements[runtime.DiskUsageReporter](rt), "runtime.DiskUsageReporter",
		"writable layers do not count for limits of ephemeral storage")
	missing(implements[runtime.FeatureReporter](rt), "runtime.FeatureReporter",
		"pods with the supplementalGroupsPolicy Strict are refused")
	missing(implements[runtime.Streamer](rt) || implements[runtime.StreamLocator](rt),
		"runtime.Streamer or runtime.StreamLocator", "exec with input, attach and port-forward are not served")
}

func implements[T any](part any) bool {
	_, ok := runtime.Optional[T](part)
	return ok
}

// choose applies the override, if there is one, to the default.
func choose[T any](name string, override Override[T], def T, parts *Parts) (T, error) {
	if override == nil {
		return def, nil
	}
	part, err := override(def, *parts)
	if err != nil {
		return part, fmt.Errorf("Options.Override.%s: %w", name, err)
	}
	if any(part) == nil || isNilPointer(part) {
		return part, fmt.Errorf("Options.Override.%s returned nil", name)
	}
	return part, nil
}
