package kubeletkit

import (
	"k8s.io/apimachinery/pkg/types"

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

// Parts are the parts of an agent, in the order in which [New] builds them: each is
// given those above it.
type Parts struct {
	// Runtime and Host are those of the options; a Host that was nil there was detected.
	Runtime runtime.Runtime
	Host    *runtime.Host
	// HostIPs returns the addresses of the node as they are now. Host.IPs are those that were
	// known when the agent was made. It is not nil.
	HostIPs func() []string
	// PodsDir is the directory that has a directory for each pod.
	PodsDir string
	// Event merges repeats and passes events on to the hooks of the options. It is not nil. It does not wait for the
	// hooks, so that parts have it as an Event that never blocks, such as with prober.Options.NonBlocking.
	Event runtime.EventFunc
	// NetworkReady returns an error while only pods with the host's network can start.
	NetworkReady func() error
	// MayRun reports whether containers of the pod may run, as far as its worker is
	// concerned. It must not be called by New.
	MayRun func(uid types.UID) bool
	// Gone reports whether what is left of the pod can be removed: it is not desired and has no
	// worker, or it was deleted in the API or evicted, and has ended. It must not be called by New.
	Gone func(uid types.UID) bool

	// Objects has the secrets and config maps that pods refer to; nil: there are none.
	Objects objects.Source
	// Checkpoint keeps pods on disk, after [Agent.Drain] also those that are refused only
	// because of it; nil: nothing is kept.
	Checkpoint checkpoint.Store
	// History keeps what happened to each pod and why. Record has its method of that name called, and does not wait for
	// it; it is nil if History is [history.None].
	History history.Store
	Record  runtime.RecordFunc
	// Inspector reads the status of a pod from the runtime, with what components add that are a
	// [lifecycle.InspectionWrapper]. Cache reads by it.
	Inspector runtime.Inspector
	// CacheOptions are the options of the default Cache, and PLEGOptions those of the default PLEG. A Cache or a PLEG
	// that is made in its place takes them from here: Record, Metrics and Logger are set in them. A [pleg.Generic]
	// takes PLEGOptions.Options.
	CacheOptions runtime.CacheOptions
	PLEGOptions  pleg.EventedOptions
	// Cache has the last known status of each pod.
	Cache runtime.StatusCache
	// PLEG reports what changed in the runtime, and reads changed pods into Cache.
	PLEG pleg.Generator
	// PodConfig merges the sources into one stream of changes.
	PodConfig podconfig.Config
	// PodManager has the desired pods.
	PodManager podmanager.Manager
	// StatusSink is that of the options, or nil. With a checkpoint it records which ends of
	// pods are delivered. A Status of one's own delivers to it, with PodGone for the end of
	// each pod.
	StatusSink status.Sink
	// Status keeps the API status of each pod and delivers it to StatusSink.
	Status status.Manager
	// Prober runs the probes of containers.
	Prober prober.Manager
	// Volumes sets up and takes down the volumes of pods.
	Volumes volume.Manager
	// Images pulls the images of containers and image volumes.
	Images images.Manager
	// Steps are the components that join the lives of pods: those of the agent, and those of the options.
	Steps *lifecycle.Steps
	// PodSyncer does the work on one pod that the workers decide on.
	PodSyncer podworkers.Syncer
	// WorkersOptions are the options of the default PodWorkers. PodWorkers that are made in
	// their place take OnBegin, OnEnd and OnFinished from here: they defer inspections of a
	// pod that is being changed, and bring housekeeping forward when pods end.
	WorkersOptions podworkers.Options
	// PodWorkers drive each pod through its life. They start no pod after [Agent.Drain].
	PodWorkers podworkers.Workers
	// GC removes dead containers, sandboxes and logs.
	GC gc.Collector
	// ImageGC removes images; nil: there is none, since the runtime is no
	// [runtime.ImageService].
	ImageGC gc.ImageCollector
	// Admission decides which new pods may run: none after [Agent.Drain].
	Admission lifecycle.Admitter
	// SyncHandler handles the inputs of the loop.
	SyncHandler syncloop.Handler
}

// A part that wraps another one embeds its interface and overrides methods of it. A part that is written anew embeds
// the base of its package, if there is one, so that methods that are added later do not break it.
type Override[T any] func(def T, parts Parts) (T, error)

// Wrap returns an Override that puts a part around the default.
func Wrap[T any](wrap func(def T) T) Override[T] {
	return func(def T, _ Parts) (T, error) { return wrap(def), nil }
}

// Replace returns an Override that uses the part in place of the default.
func Replace[T any](part T) Override[T] {
	return func(T, Parts) (T, error) { return part, nil }
}

// Overrides replace or wrap parts of an agent; nil fields leave the defaults. [Agent.Run] logs at level 1 which parts
// are replaced or wrapped.
type Overrides struct {
	// Objects wraps [Options].API.Objects, or the checkpoint's view of it.
	Objects Override[objects.Source]
	// Checkpoint wraps [Options].Checkpoint.
	Checkpoint Override[checkpoint.Store]
	// History: default a [*history.Memory] with [Options].Observe.History.
	History Override[history.Store]
	// Cache: default a [*runtime.Cache] over [Parts].Inspector with [Options].Cache, which is also
	// [Parts].CacheOptions.
	Cache Override[runtime.StatusCache]
	// PLEG: default a [*pleg.Evented] with [Parts].PLEGOptions, which relists like a [*pleg.Generic] if the
	// runtime is no [runtime.EventSource]. It must read changed pods into [Parts].Cache.
	PLEG Override[pleg.Generator]
	// PodConfig: default a [*podconfig.Mux].
	PodConfig Override[podconfig.Config]
	// PodManager: default a [*podmanager.Store].
	PodManager Override[podmanager.Manager]
	// Status: default a [*status.Store].
	Status Override[status.Manager]
	// Prober: default a [*prober.Prober].
	Prober Override[prober.Manager]
	// Volumes: default a [*volume.Reconciler] with the plugins of [Options].Plugins.Volumes.
	Volumes Override[volume.Manager]
	// Images: default a [*images.Puller] with [Options].Images.
	Images Override[images.Manager]
	// PodSyncer: default a [*podsync.Syncer].
	PodSyncer Override[podworkers.Syncer]
	// PodWorkers: default [*podworkers.Pool] with [Parts].WorkersOptions.
	PodWorkers Override[podworkers.Workers]
	// GC: default a [*gc.ContainerGC].
	GC Override[gc.Collector]
	// ImageGC: default a [*gc.ImageGC], or nil if the runtime is no
	// [runtime.ImageService].
	ImageGC Override[gc.ImageCollector]
	// Admission: default all components that are a [lifecycle.Admitter]: a [syncloop.Security],
	// [Options].Admission.Limits and those of [Options].Join.
	Admission Override[lifecycle.Admitter]
	// SyncHandler: default a [*syncloop.PodHandler].
	SyncHandler Override[syncloop.Handler]
}

// DefaultRootDir is the default of [Options].RootDir.
const DefaultRootDir = "/var/lib/kubeletkit"

// kubelet's directories.
const (
	kubeletRootDir    = "/var/lib/kubelet"
	kubeletPodLogsDir = "/var/log/pods"
	// kubeletLogLinksDir has links to the logs in kubeletPodLogsDir. runtime/cri makes them.
	kubeletLogLinksDir = "/var/log/containers"
)
