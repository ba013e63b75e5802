package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

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

// Options compose an [Agent]. Runtime and NodeName are required; what is left out has the default of its comment.
type Options struct {
	// NodeName is the name of the node. Static pods carry it as a suffix.
	NodeName string
	// RootDir holds what the agent keeps on disk: the directories of the pods under
	// "pods". Default [DefaultRootDir]. [Agent.Run] refuses a directory that other users
	// can write to or replace: it and its parents belong to this user or to root.
	RootDir string

	// ShareRootDir makes RootDir a shared mount when the agent starts, as kubelet does: containers with the mount
	// propagation HostToContainer or Bidirectional of a path in it need one. If that is not possible, as without
	// CAP_SYS_ADMIN, it is logged, and the agent goes on. The mount stays when the agent has ended.
	ShareRootDir bool

	// Runtime runs the pods, as runtime/cri.Dial returns it. The agent does not close it. Its abilities, such as
	// [runtime.EventSource], are found with [runtime.Optional]. A Runtime that is a runtime.EventSource is
	// relisted every 5 minutes; any other every second.
	Runtime runtime.Runtime
	// Sources deliver the pods that are to run.
	Sources []podconfig.Source
	// StatusSink receives the status of each pod, and its end. nil: statuses are only kept, see
	// [Agent.Pods].
	StatusSink status.Sink
	// Checkpoint keeps the pods that were admitted, and the secrets and config maps that
	// they refer to, so that they run again after a reboot though no source can be
	// reached. It keeps the results of probes too: containers that run while the agent is
	// restarted stay started and ready. It belongs to this agent alone. nil: nothing is kept, and after a restart
	// of the agent, containers have the results in the status that their source delivers.
	Checkpoint checkpoint.Store

	// Host describes the machine to pods. nil: the result of [DetectHost].
	//
	// Its PodLogsDir is where the runtime writes the output of containers. It must belong to
	// this agent alone: directories in it that are named <namespace>_<name>_<uid> and
	// belong to no pod of the agent are removed. If it is empty, it is "logs" in RootDir, or kubelet's
	// /var/log/pods if RootDir is kubelet's /var/lib/kubelet.
	Host *runtime.Host
	// HostIPs returns the addresses of the node as they are now, as Host.IPs has them, and none
	// while they are unknown. It takes the place of Host.IPs. It is called for each status, sync
	// and probe, so it must be fast, and safe for concurrent use. nil: Host.IPs, and if that is
	// empty or Host is nil, the result of [DetectHostIPs]. A changed address is in the statuses
	// of pods with their next sync, after some minutes at the latest (Workers.ResyncInterval); with [Agent.Sync] it
	// is there at once.
	HostIPs func() []string

	// API has what pods refer to.
	API API
	// Admission has the checks of new pods.
	Admission Admission
	// The options of the default parts. The fields that the agent sets in them are ignored: the Observer, and those
	// that the comments name. An override receives them as the default part would, see [Parts].

	// Cache has the limits of the reads of pods from the runtime.
	Cache runtime.CacheOptions
	// PLEG has how the agent sees what changes in the runtime: how often it lists, and whether it uses the event
	// stream.
	PLEG pleg.EventedOptions
	// Status has how statuses are delivered. The agent sets Sink and MayRun.
	Status status.Options
	// Prober has how probes are made. Handlers are types of probes. The agent sets HostIPs and States.
	Prober prober.Options
	// Volumes has how volumes are set up. Plugins are types of volumes. The agent sets Sources, see API.
	Volumes volume.Options
	// Images has how images are pulled.
	Images images.Options
	// Workers has when pods are synced again. The agent sets OnBegin, OnEnd and OnFinished.
	Workers podworkers.Options
	// GC has which dead containers, logs and cgroups are removed. If Cgroups is nil, it is the first component of Join
	// that is a [gc.Cgroups], such as a *cgroup.Manager. Default of LogLinksDir: kubelet's /var/log/containers for logs
	// in /var/log/pods, else there are no links. With a Plan, dead containers of crash loops stay until the next
	// collection. The agent sets LogsDir and Ended.
	GC gc.Options
	// ImageGC has when and which images are removed: by default from 85 % usage of their file system down to 80 %, as
	// in kubelet. It has no effect if Runtime is no [runtime.ImageService], itself or through Unwrap. The agent sets
	// StateFile and Listed.
	ImageGC gc.ImageOptions
	// RecreateUpdated stops a pod and starts it again when an update under its UID
	// changes a field that does not act on running containers, such as a command. If it
	// is false, only an event names these fields. Pods with the restart policy Never or
	// OnFailure get the event in any case, because their containers might not start again,
	// and so do pods of an API server, where a pod that was stopped is Failed for good.
	RecreateUpdated bool
	// NoStorageEviction keeps pods although they exceed the size limit of an emptyDir volume or a limit of
	// ephemeral-storage, as kubelet does with localStorageCapacityIsolation: false.
	NoStorageEviction bool

	// Observe has the receivers of what the agent does.
	Observe Observe

	// Join are components that join the lives of pods: they admit pods, prepare what pods need, edit what containers
	// are created with, and clean up; see package lifecycle. They are called after the components of the agent, at the
	// end of a pod before them. One that has to come before or after others is a [lifecycle.Ordered]. A
	// [lifecycle.Runner] runs as long as the agent. A [lifecycle.Joiner] gets the agent, as a [lifecycle.Node].
	Join []lifecycle.Component
	// Override replaces or wraps any of the parts.
	Override Overrides
}

// logLinksDir returns the directory of links to logs in podLogsDir; "" if there is none.
func logLinksDir(podLogsDir string) string {
	if filepath.Clean(podLogsDir) == kubeletPodLogsDir {
		return kubeletLogLinksDir
	}
	return ""
}

// defaultPodLogsDir returns the directory of logs of an agent with the root directory.
func defaultPodLogsDir(rootDir string) string {
	if filepath.Clean(rootDir) == kubeletRootDir {
		return kubeletPodLogsDir
	}
	return filepath.Join(rootDir, "logs")
}

// complete fills in the defaults and returns all that is wrong at once.
func (o *Options) complete() error {
	var errs []error
	if o.Runtime == nil {
		errs = append(errs, errors.New("Options.Runtime is required; runtime/cri.Dial makes one from a CRI socket"))
	}
	errs = append(errs, nilPointers("Options", reflect.ValueOf(*o))...)
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(o.NodeName)); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("Options.NodeName %q: %s", o.NodeName, strings.Join(problems, "; ")))
	}
	if o.RootDir == "" {
		o.RootDir = DefaultRootDir
	}
	if !filepath.IsAbs(o.RootDir) {
		errs = append(errs, fmt.Errorf("field Options.RootDir %q: must be an absolute path", o.RootDir))
	}
	if h := o.Host; h != nil && h.PodLogsDir != "" && !filepath.IsAbs(h.PodLogsDir) {
		errs = append(errs, fmt.Errorf("field Options.Host.PodLogsDir %q: must be an absolute path", h.PodLogsDir))
	}
	errs = append(errs, noNil("Sources", o.Sources), noNil("Join", o.Join), noNil("Volumes.Plugins", o.Volumes.Plugins),
		noNil("Prober.Handlers", o.Prober.Handlers))
	if o.Workers.ResyncInterval == 0 {
		o.Workers.ResyncInterval = time.Minute
	}
	return errors.Join(errs...)
}

// nilPointers returns an error for each interface that holds a nil pointer: in the value, in fields of structs and in
// elements of lists.
func nilPointers(name string, v reflect.Value) (errs []error) {
	switch v.Kind() {
	case reflect.Interface:
		if isNilPointer(v.Interface()) {
			errs = append(errs, fmt.Errorf("field %s holds a nil %s", name, v.Elem().Type()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				errs = append(errs, nilPointers(name+"."+f.Name, v.Field(i))...)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			errs = append(errs, nilPointers(fmt.Sprintf("%s[%d]", name, i), v.Index(i))...)
		}
	}
	return errs
}

// isNilPointer reports whether the value of an interface is a nil pointer: it is not nil, and its methods panic.
func isNilPointer(part any) bool {
	v := reflect.ValueOf(part)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// noNil returns an error that names the nil elements of a list in the options.
func noNil[T any](field string, list []T) error {
	var errs []error
	for i, e := range list {
		if any(e) == nil {
			errs = append(errs, fmt.Errorf("field Options.%s[%d] is nil", field, i))
		}
	}
	return errors.Join(errs...)
}

// API has what an API server knows and pods refer to. The zero value is a node without one: pods that
// refer to any of it wait.
type API struct {
	// Objects has the secrets and config maps that pods refer to. nil: there are none,
	// and containers that need one wait.
	Objects objects.Source
	// Tokens has the tokens of service accounts for volumes. nil: there are none, and pods
	// with such volumes wait.
	Tokens volume.TokenSource
	// TrustBundles has the cluster trust bundles of an API server. nil: there are none, and pods
	// with such volumes wait.
	TrustBundles volume.TrustBundleSource
	// PodCertificates has keys and certificates that an API server has issued for pods. nil: there
	// are none, and pods with such volumes wait.
	PodCertificates volume.PodCertificateSource
	// Claims has the claims and persistent volumes of an API server. nil: there are none, and
	// pods with claims wait.
	Claims volume.ClaimSource
	// NodeLabels returns the labels of the node object, for the node affinity of persistent
	// volumes. It must not block, and is safe for concurrent use. nil: the node affinity is not
	// checked.
	NodeLabels func() map[string]string
	// NodeAllocatable returns what pods can have of the node as it is now, in place of Host.Allocatable. It must not
	// block, and is safe for concurrent use; the result is not changed. nil: Host.Allocatable.
	NodeAllocatable func() v1.ResourceList
	// TranslateUID returns the UID of the static pod if uid is that of its mirror pod, and otherwise uid, for
	// [Agent.TranslateUID]. It must not block, and is safe for concurrent use. nil: there are no mirror pods.
	TranslateUID func(uid types.UID) types.UID
	// PullSecrets returns the image pull secrets of a pod. nil: those of Objects that
	// the pod names.
	PullSecrets func(ctx context.Context, pod *v1.Pod) ([]v1.Secret, error)
	// ServiceEnv returns the environment variables of services for the containers of a pod, as
	// a *services.Services of cluster/services does. The containers wait while it fails. nil:
	// there are none.
	ServiceEnv func(ctx context.Context, pod *v1.Pod) ([]v1.EnvVar, error)
}

// Admission has the checks of new pods and of resizes. The zero value limits nothing.
type Admission struct {
	// Limits of what the node takes on; the zero value limits nothing.
	Limits syncloop.Limits
	// AllowedUnsafeSysctls are the sysctls that pods may set beside the safe ones, see
	// [syncloop.Security]. A name may end in "*". Default: none.
	AllowedUnsafeSysctls []string
}

// Observe receives what the agent does. The agent does not wait for the receivers: each has a queue of 4096, and a
// goroutine while it is not empty, which calls the receiver one at a time and in order. A receiver that blocks loses
// what does not fit; the number is logged. A panic is logged, the first one of each receiver. At its end, [Agent.Run]
// waits 3 s at most for receivers that have not returned. The Logger is called directly, and must not block.
type Observe struct {
	// Event receives the events of pods: refusals, pulls, kills, probes, volumes. Those of
	// the node have no pod. Repeats are merged, see [runtime.MergeEvents]. nil: they are
	// logged, warnings at level 0 and others at level 2. See EveryEvent for each single one.
	Event runtime.EventFunc
	// EveryEvent receives the same events, each as often as it happens, for receivers that
	// merge by themselves. The Event method of a *events.Recorder of cluster/events is one.
	// nil: nothing.
	EveryEvent runtime.EventFunc
	// History are the limits of what is kept of each pod: what was seen, decided and done.
	// Default of History.File: "history" in RootDir if there is a Checkpoint, otherwise none.
	// Default of History.Logger: that of the agent. The history is [Parts].History.
	History history.Options
	// Measure receives what the parts and the components measure. That of metrics/prometheus makes kubelet's metrics of
	// it; a function of yours can call several. nil: nothing is measured.
	Measure runtime.MeasureFunc
	// Logger of the agent; each part gets it under a name of its own. Default, here and in the options of all packages:
	// that of package slog. The logger logr.FromSlogHandler(slog.DiscardHandler) discards; logr.Discard returns the
	// zero value, which is the default.
	Logger logr.Logger
}

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
	// Observer passes on what the parts report to the receivers of the options, and does not block. Event merges
	// repeats, Record passes records to History; it is nil before History is built, and if that is [history.None]. Each
	// part has it under a name: Observer.Named("prober").
	Observer runtime.Observer
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
	// History keeps what happened to each pod and why.
	History history.Store
	// Inspector reads the status of a pod from the runtime, with what components add that are a
	// [lifecycle.InspectionWrapper]. Cache reads by it.
	Inspector runtime.Inspector
	// CacheOptions, PLEGOptions and so on are the options of the default parts, complete with what the agent sets in
	// them. A part that is made in place of a default takes what it needs from them. A [pleg.Generic] takes
	// PLEGOptions.Options. Workers take OnBegin, OnEnd and OnFinished: they defer inspections of a pod that is being
	// changed, and bring housekeeping forward when pods end. Each is set when its part is built.
	CacheOptions   runtime.CacheOptions
	PLEGOptions    pleg.EventedOptions
	StatusOptions  status.Options
	ProberOptions  prober.Options
	VolumesOptions volume.Options
	ImagesOptions  images.Options
	WorkersOptions podworkers.Options
	GCOptions      gc.Options
	ImageGCOptions gc.ImageOptions

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

// Override replaces or wraps one part of an agent. It is called once, by [New], with the
// default of the part and the parts that were built before, and returns the part to use.
// It starts nothing. An error fails New.
//
// [Wrap] makes an Override from a function, and [Replace] from a value. An Override that is
// written out can build a part from other parts:
//
//	PLEG: func(_ pleg.Generator, p kubeletkit.Parts) (pleg.Generator, error) {
//		return newGenerator(p.Runtime, p.Cache, p.PLEGOptions), nil
//	}
//
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
	// Status: default a [*status.Store] with [Parts].StatusOptions.
	Status Override[status.Manager]
	// Prober: default a [*prober.Prober] with [Parts].ProberOptions.
	Prober Override[prober.Manager]
	// Volumes: default a [*volume.Reconciler] with [Parts].VolumesOptions.
	Volumes Override[volume.Manager]
	// Images: default a [*images.Puller] with [Parts].ImagesOptions.
	Images Override[images.Manager]
	// PodSyncer: default a [*podsync.Syncer].
	PodSyncer Override[podworkers.Syncer]
	// PodWorkers: default [*podworkers.Pool] with [Parts].WorkersOptions.
	PodWorkers Override[podworkers.Workers]
	// GC: default a [*gc.ContainerGC] with [Parts].GCOptions.
	GC Override[gc.Collector]
	// ImageGC: default a [*gc.ImageGC] with [Parts].ImageGCOptions, or nil if the runtime is no
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
