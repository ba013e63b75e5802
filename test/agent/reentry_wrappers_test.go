package agent_test

import (
	"context"
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/podconfig/podmanager"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// Everything that an embedder gives to an agent. Methods call enter, and then what they wrap.
type (
	reCache struct {
		runtime.StatusCache
		*reentry
	}
	rePLEG struct {
		pleg.Generator
		*reentry
	}
	reConfig struct {
		podconfig.Config
		*reentry
	}
	rePods struct {
		podmanager.Manager
		*reentry
	}
	reStatus struct {
		status.Manager
		*reentry
	}
	reProber struct {
		prober.Manager
		*reentry
	}
	reVolumes struct {
		volume.Manager
		*reentry
	}
	reImages struct {
		images.Manager
		*reentry
	}
	reSyncer struct {
		podworkers.Syncer
		*reentry
	}
	reWorkers struct {
		podworkers.Workers
		*reentry
	}
	reGC struct {
		gc.Collector
		*reentry
	}
	reImageGC struct {
		gc.ImageCollector
		*reentry
	}
	reAdmitter struct {
		lifecycle.Admitter
		*reentry
	}
	reHandler struct {
		syncloop.Handler
		*reentry
	}
	reCheckpoint struct {
		checkpoint.Store
		*reentry
	}
	reHistory struct {
		history.Store
		*reentry
	}
	reObjects struct {
		objects.Source
		*reentry
	}
	reRuntime struct {
		runtime.Runtime
		*reentry
	}
	reSource struct {
		podconfig.Source
		*reentry
	}
	reSink struct {
		status.Sink
		*reentry
	}
	rePlugin struct{ *reentry }
	reProbe  struct{ *reentry }
)

// overrides has each part wrapped.
func (e *reentry) overrides() kubeletkit.Overrides {
	return kubeletkit.Overrides{
		Objects:     kubeletkit.Wrap(func(s objects.Source) objects.Source { return reObjects{s, e} }),
		Checkpoint:  kubeletkit.Wrap(func(c checkpoint.Store) checkpoint.Store { return reCheckpoint{c, e} }),
		History:     kubeletkit.Wrap(func(h history.Store) history.Store { return reHistory{h, e} }),
		Cache:       kubeletkit.Wrap(func(c runtime.StatusCache) runtime.StatusCache { return reCache{c, e} }),
		PLEG:        kubeletkit.Wrap(func(g pleg.Generator) pleg.Generator { return rePLEG{g, e} }),
		PodConfig:   kubeletkit.Wrap(func(c podconfig.Config) podconfig.Config { return reConfig{c, e} }),
		PodManager:  kubeletkit.Wrap(func(m podmanager.Manager) podmanager.Manager { return rePods{m, e} }),
		Status:      kubeletkit.Wrap(func(m status.Manager) status.Manager { return reStatus{m, e} }),
		Prober:      kubeletkit.Wrap(func(p prober.Manager) prober.Manager { return reProber{p, e} }),
		Volumes:     kubeletkit.Wrap(func(m volume.Manager) volume.Manager { return reVolumes{m, e} }),
		Images:      kubeletkit.Wrap(func(m images.Manager) images.Manager { return reImages{m, e} }),
		PodSyncer:   kubeletkit.Wrap(func(s podworkers.Syncer) podworkers.Syncer { return reSyncer{s, e} }),
		PodWorkers:  kubeletkit.Wrap(func(w podworkers.Workers) podworkers.Workers { return reWorkers{w, e} }),
		GC:          kubeletkit.Wrap(func(c gc.Collector) gc.Collector { return reGC{c, e} }),
		ImageGC:     kubeletkit.Wrap(func(m gc.ImageCollector) gc.ImageCollector { return reImageGC{m, e} }),
		Admission:   kubeletkit.Wrap(func(a lifecycle.Admitter) lifecycle.Admitter { return reAdmitter{a, e} }),
		SyncHandler: kubeletkit.Wrap(func(h syncloop.Handler) syncloop.Handler { return reHandler{h, e} }),
	}
}

func (w rePods) Unwrap() any    { return w.Manager }
func (w reSyncer) Unwrap() any  { return w.Syncer }
func (w reRuntime) Unwrap() any { return w.Runtime }

func (w reCache) Now() runtime.Mark { w.enter("Cache.Now"); return w.StatusCache.Now() }
func (w reCache) First(uid types.UID) runtime.Mark {
	w.enter("Cache.First")
	return w.StatusCache.First(uid)
}
func (w reCache) Get(uid types.UID) (*runtime.PodStatus, bool) {
	w.enter("Cache.Get")
	return w.StatusCache.Get(uid)
}
func (w reCache) Newer(ctx context.Context, ref runtime.PodRef, after runtime.Mark) (*runtime.PodStatus, error) {
	w.enter("Cache.Newer")
	return w.StatusCache.Newer(ctx, ref, after)
}
func (w reCache) Seen(uid types.UID) []*runtime.PodStatus {
	w.enter("Cache.Seen")
	return w.StatusCache.Seen(uid)
}
func (w reCache) ForgetUntil(uid types.UID, mark runtime.Mark) bool {
	w.enter("Cache.ForgetUntil")
	return w.StatusCache.ForgetUntil(uid, mark)
}
func (w reCache) Listed(pods []*runtime.Pod, after runtime.Mark) {
	w.enter("Cache.Listed")
	w.StatusCache.Listed(pods, after)
}

func (w rePLEG) Watch() <-chan pleg.PodEvents { w.enter("PLEG.Watch"); return w.Generator.Watch() }
func (w rePLEG) Healthy() error               { w.enter("PLEG.Healthy"); return w.Generator.Healthy() }
func (w rePLEG) Relist()                      { w.enter("PLEG.Relist"); w.Generator.Relist() }
func (w rePLEG) Hold(uid types.UID)           { w.enter("PLEG.Hold"); w.Generator.Hold(uid) }
func (w rePLEG) Release(uid types.UID)        { w.enter("PLEG.Release"); w.Generator.Release(uid) }

func (w reConfig) Changes() <-chan podconfig.Change {
	w.enter("PodConfig.Changes")
	return w.Config.Changes()
}
func (w reConfig) SourcesReady() bool {
	w.enter("PodConfig.SourcesReady")
	return w.Config.SourcesReady()
}
func (w reConfig) Sources() []podconfig.SourceState {
	w.enter("PodConfig.Sources")
	return w.Config.Sources()
}

func (w rePods) Set(pod *v1.Pod)    { w.enter("PodManager.Set"); w.Manager.Set(pod) }
func (w rePods) Remove(pod *v1.Pod) { w.enter("PodManager.Remove"); w.Manager.Remove(pod) }
func (w rePods) Pods() []*v1.Pod    { w.enter("PodManager.Pods"); return w.Manager.Pods() }
func (w rePods) ByUID(uid types.UID) (*v1.Pod, bool) {
	w.enter("PodManager.ByUID")
	return w.Manager.ByUID(uid)
}

func (w reStatus) Get(uid types.UID) (v1.PodStatus, bool) {
	w.enter("Status.Get")
	return w.Manager.Get(uid)
}
func (w reStatus) Pods() []*v1.Pod                 { w.enter("Status.Pods"); return w.Manager.Pods() }
func (w reStatus) Set(pod *v1.Pod, s v1.PodStatus) { w.enter("Status.Set"); w.Manager.Set(pod, s) }
func (w reStatus) Terminate(pod *v1.Pod)           { w.enter("Status.Terminate"); w.Manager.Terminate(pod) }
func (w reStatus) Recheck()                        { w.enter("Status.Recheck"); w.Manager.Recheck() }
func (w reStatus) PodEnded(ref runtime.PodRef)     { w.enter("Status.PodEnded"); w.Manager.PodEnded(ref) }
func (w reStatus) Forget(uid types.UID)            { w.enter("Status.Forget"); w.Manager.Forget(uid) }
func (w reStatus) Healthy() error                  { w.enter("Status.Healthy"); return w.Manager.Healthy() }
func (w reStatus) Prune(keep func(types.UID) bool) {
	w.enter("Status.Prune")
	w.Manager.Prune(func(uid types.UID) bool { w.enter("Status.Prune.keep"); return keep(uid) })
}

func (w reProber) AddPod(pod *v1.Pod) { w.enter("Prober.AddPod"); w.Manager.AddPod(pod) }
func (w reProber) StopLivenessAndStartup(pod *v1.Pod) {
	w.enter("Prober.Stop")
	w.Manager.StopLivenessAndStartup(pod)
}
func (w reProber) RemovePod(pod *v1.Pod) { w.enter("Prober.RemovePod"); w.Manager.RemovePod(pod) }
func (w reProber) Notify(uid types.UID)  { w.enter("Prober.Notify"); w.Manager.Notify(uid) }
func (w reProber) Cleanup(keep func(types.UID) bool) {
	w.enter("Prober.Cleanup")
	w.Manager.Cleanup(func(uid types.UID) bool { w.enter("Prober.Cleanup.keep"); return keep(uid) })
}
func (w reProber) Ready(id runtime.ContainerID) bool {
	w.enter("Prober.Ready")
	return w.Manager.Ready(id)
}

func (w reVolumes) SetUp(ctx context.Context, pod *v1.Pod, dir string) (map[string]runtime.Volume, error) {
	w.enter("Volumes.SetUp")
	return w.Manager.SetUp(ctx, pod, dir)
}
func (w reImages) Ensure(ctx context.Context, req images.Request) (*runtime.Image, error) {
	w.enter("Images.Ensure")
	return w.Manager.Ensure(ctx, req)
}
func (w reVolumes) Exceeded(ctx context.Context, pod *v1.Pod, dir string) (string, error) {
	w.enter("Volumes.Exceeded")
	return w.Manager.Exceeded(ctx, pod, dir)
}
func (w reVolumes) TearDown(ctx context.Context, ref runtime.PodRef, dir string) error {
	w.enter("Volumes.TearDown")
	return w.Manager.TearDown(ctx, ref, dir)
}
func (w reVolumes) Remove(ctx context.Context, ref runtime.PodRef, dir string) error {
	w.enter("Volumes.Remove")
	return w.Manager.Remove(ctx, ref, dir)
}

func (w reSyncer) SyncPod(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod,
	s *runtime.PodStatus) (podworkers.Result, error) {
	w.enter("PodSyncer.SyncPod")
	return w.Syncer.SyncPod(ctx, typ, pod, s)
}
func (w reSyncer) SyncTerminatingPod(ctx context.Context, pod *v1.Pod, s *runtime.PodStatus,
	t podworkers.Termination) error {
	w.enter("PodSyncer.SyncTerminatingPod")
	return w.Syncer.SyncTerminatingPod(ctx, pod, s, t)
}
func (w reSyncer) SyncTerminatedPod(ctx context.Context, pod *v1.Pod, s *runtime.PodStatus) error {
	w.enter("PodSyncer.SyncTerminatedPod")
	return w.Syncer.SyncTerminatedPod(ctx, pod, s)
}

func (w reWorkers) UpdatePod(u podworkers.Update) {
	w.enter("PodWorkers.UpdatePod")
	w.Workers.UpdatePod(u)
}
func (w reWorkers) SyncKnownPods(pods []*v1.Pod) map[types.UID]podworkers.State {
	w.enter("PodWorkers.SyncKnownPods")
	return w.Workers.SyncKnownPods(pods)
}
func (w reWorkers) State(uid types.UID) podworkers.State {
	w.enter("PodWorkers.State")
	return w.Workers.State(uid)
}
func (w reWorkers) Drain() { w.enter("PodWorkers.Drain"); w.Workers.Drain() }

func (w reGC) Kick() { w.enter("GC.Kick"); w.Collector.Kick() }
func (w reImageGC) Run(ctx context.Context) error {
	w.enter("ImageGC.Run")
	return w.ImageCollector.Run(ctx)
}
func (w reImageGC) GarbageCollect(ctx context.Context) error {
	w.enter("ImageGC.GarbageCollect")
	return w.ImageCollector.GarbageCollect(ctx)
}

func (w reAdmitter) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	w.enter("Admission.Admit")
	return w.Admitter.Admit(req)
}

func (w reHandler) HandlePodAdditions(pods []*v1.Pod) {
	w.enter("SyncHandler.HandlePodAdditions")
	w.Handler.HandlePodAdditions(pods)
}
func (w reHandler) HandlePodUpdates(pods []*v1.Pod) {
	w.enter("SyncHandler.HandlePodUpdates")
	w.Handler.HandlePodUpdates(pods)
}
func (w reHandler) HandlePodRemoves(pods []*v1.Pod) {
	w.enter("SyncHandler.HandlePodRemoves")
	w.Handler.HandlePodRemoves(pods)
}
func (w reHandler) HandlePodSyncs(pods []*v1.Pod) {
	w.enter("SyncHandler.HandlePodSyncs")
	w.Handler.HandlePodSyncs(pods)
}
func (w reHandler) HandlePodCleanups(ctx context.Context) error {
	w.enter("SyncHandler.HandlePodCleanups")
	return w.Handler.HandlePodCleanups(ctx)
}

func (w reCheckpoint) Keep(pod *v1.Pod)   { w.enter("Checkpoint.Keep"); w.Store.Keep(pod) }
func (w reCheckpoint) Drop(uid types.UID) { w.enter("Checkpoint.Drop"); w.Store.Drop(uid) }
func (w reCheckpoint) Prune(keep func(types.UID) bool) {
	w.enter("Checkpoint.Prune")
	w.Store.Prune(func(uid types.UID) bool { w.enter("Checkpoint.Prune.keep"); return keep(uid) })
}

func (w reHistory) Record(r runtime.Record) { w.enter("History.Record"); w.Store.Record(r) }
func (w reHistory) Entries(uid types.UID) []history.Entry {
	w.enter("History.Entries")
	return w.Store.Entries(uid)
}
func (w reHistory) Watch(ctx context.Context, uid types.UID) iter.Seq[history.Entry] {
	w.enter("History.Watch")
	return w.Store.Watch(ctx, uid)
}

func (w reObjects) Watch(ctx context.Context, changed func([]objects.Ref)) error {
	w.enter("Objects.Watch")
	return w.Source.Watch(ctx, func(refs []objects.Ref) { changed(refs); w.enter("Objects.Watch.changed") })
}

func (w reRuntime) ListPods(ctx context.Context) ([]*runtime.Pod, error) {
	w.enter("Runtime.ListPods")
	return w.Runtime.ListPods(ctx)
}
func (w reRuntime) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	w.enter("Runtime.InspectPod")
	return w.Runtime.InspectPod(ctx, ref)
}
func (w reRuntime) SyncPod(ctx context.Context, req runtime.PodSync) (runtime.SyncResult, error) {
	w.enter("Runtime.SyncPod")
	return w.Runtime.SyncPod(ctx, req)
}
func (w reRuntime) KillPod(ctx context.Context, req runtime.PodKill) error {
	w.enter("Runtime.KillPod")
	return w.Runtime.KillPod(ctx, req)
}
func (w reRuntime) RemoveContainer(ctx context.Context, id runtime.ContainerID) error {
	w.enter("Runtime.RemoveContainer")
	return w.Runtime.RemoveContainer(ctx, id)
}
func (w reRuntime) RemoveSandbox(ctx context.Context, id string) error {
	w.enter("Runtime.RemoveSandbox")
	return w.Runtime.RemoveSandbox(ctx, id)
}
func (w reRuntime) Check(ctx context.Context) error {
	w.enter("Runtime.Check")
	return w.Runtime.Check(ctx)
}

func (w reSource) Run(ctx context.Context, sink podconfig.Sink) error {
	return w.Source.Run(ctx, podconfigSink{sink, w.reentry})
}

// podconfigSink re-enters before and after each delivery of a source.
type podconfigSink struct {
	podconfig.Sink
	*reentry
}

func (s podconfigSink) Set(pods []*v1.Pod) {
	s.enter("Source before Set")
	s.Sink.Set(pods)
	s.enter("Source after Set")
}

func (w reSink) Deliver(ctx context.Context, pod *v1.Pod, s v1.PodStatus) (status.Result, error) {
	w.enter("StatusSink.Deliver")
	return w.Sink.Deliver(ctx, pod, s)
}
func (w reSink) PodGone(ctx context.Context, pod runtime.PodRef, last *v1.PodStatus) error {
	w.enter("StatusSink.PodGone")
	return w.Sink.PodGone(ctx, pod, last)
}

func (w rePlugin) Name() string { return "reentry" }
func (w rePlugin) Supports(v *v1.Volume) bool {
	w.enter("Plugin.Supports")
	return v.Name == "own"
}
func (w rePlugin) SetUp(context.Context, volume.SetUpRequest) (runtime.Volume, error) {
	w.enter("Plugin.SetUp")
	return runtime.Volume{HostPath: "/dev/null"}, nil
}
func (w rePlugin) TearDown(context.Context, volume.TearDownRequest) error {
	w.enter("Plugin.TearDown")
	return nil
}

func (w reProbe) Name() string { return "reentry" }
func (w reProbe) Probe(_ *v1.Pod, _ *v1.Container, kind runtime.ProbeKind) *v1.Probe {
	w.enter("Probe.Probe")
	if kind == runtime.ReadinessProbe {
		return &v1.Probe{PeriodSeconds: 1}
	}
	return nil
}
func (w reProbe) Check(context.Context, prober.Target) (prober.Outcome, string, error) {
	w.enter("Probe.Check")
	return prober.Success, "", nil
}
