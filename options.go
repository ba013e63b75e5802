package kubeletkit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/volume"
)

// Options compose an [Agent]. Runtime and NodeName are required.
type Options struct {
	// NodeName is the name of the node. Static pods carry it as a suffix.
	NodeName string
	// RootDir holds what the agent keeps on disk: the directories of the pods under
	// "pods". Default [DefaultRootDir]. [Agent.Run] refuses a directory that other users
	// can write to or replace: it and its parents belong to this user or to root.
	RootDir string
	// PodLogsDir is where the runtime writes the output of containers. It must belong to
	// this agent alone: directories in it that are named <namespace>_<name>_<uid> and
	// belong to no pod of the agent are removed. Default: "logs" in RootDir, or kubelet's
	// /var/log/pods if RootDir is kubelet's /var/lib/kubelet.
	PodLogsDir string

	// Runtime runs the pods, as runtime/cri.Dial returns it. The agent does not close it.
	// A Runtime that is also a [runtime.EventSource], itself or through Unwrap, see
	// [runtime.Optional], is relisted every 5 minutes; any other every second.
	Runtime runtime.Runtime
	// Sources deliver the pods that are to run.
	Sources []podconfig.Source
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
	// Checkpoint keeps the pods that were admitted, and the secrets and config maps that
	// they refer to, so that they run again after a reboot though no source can be
	// reached. It belongs to this agent alone. nil: nothing is kept.
	Checkpoint Checkpoint
	// PullSecrets returns the image pull secrets of a pod. nil: those of Objects that
	// the pod names.
	PullSecrets func(ctx context.Context, pod *v1.Pod) ([]v1.Secret, error)

	// ServiceEnv returns the environment variables of services for the containers of a pod, as
	// a *services.Services of cluster/services does. The containers wait while it fails. nil:
	// there are none.
	ServiceEnv func(ctx context.Context, pod *v1.Pod) ([]v1.EnvVar, error)

	// Limits of what the node takes on; the zero value limits nothing.
	Limits syncloop.Limits
	// AllowedUnsafeSysctls are the sysctls that pods may set beside the safe ones, see
	// [syncloop.Security]. A name may end in "*". Default: none.
	AllowedUnsafeSysctls []string
	// Admit is called in order for each new pod and each resize that Limits admit. The first
	// error refuses the pod, or defers the resize.
	Admit []syncloop.Admitter
	// Volumes are plugins that are tried, in order, before those of package volume. A
	// plugin that has the name of one of these needs a [volume.Manager] without default
	// plugins, in Override.Volumes.
	Volumes []volume.Plugin
	// Probes are handlers of probes that are tried, in order, before those of package
	// prober.
	Probes []prober.Handler
	// GC decides which dead containers stay. Default: the newest of each.
	GC gc.Policy
	// GCPlan decides what garbage collection removes, in place of [gc.Plan]. nil: gc.Plan
	// with the policy GC.
	GCPlan gc.PlanFunc
	// GCPodPlan decides which dead containers of a pod garbage collection removes when one has
	// ended, see [gc.Options].PodPlan. nil: gc.Plan if GCPlan is nil too; otherwise dead
	// containers stay until the next collection.
	GCPodPlan gc.PlanFunc
	// PodCgroups removes the cgroups of pods that are gone; a *cgroup.Pods of resources/cgroup
	// does. The cgroups below its root must belong to this agent alone. If it is
	// [gc.GoneCgroups], itself or through Unwrap, its method Remove is not called; see there for
	// types that embed a *cgroup.Pods. nil: they are left alone.
	PodCgroups gc.PodCgroups
	// ImageGC decides when and which images are removed. Default: kubelet's, from 85 % usage
	// of their file system down to 80 %. It has no effect if Runtime is no
	// [runtime.ImageService], itself or through Unwrap.
	ImageGC gc.ImagePolicy
	// ImageGCPlan decides which images are removed, in place of [gc.PlanImages]. nil:
	// gc.PlanImages with the policy ImageGC.
	ImageGCPlan gc.ImagePlanFunc
	// SyncFrequency is the time between two syncs of a pod to which nothing happens.
	// Default 1 minute, as kubelet.
	SyncFrequency time.Duration
	// RecreateUpdated stops a pod and starts it again when an update under its UID
	// changes a field that does not act on running containers, such as a command. If it
	// is false, only an event names these fields. Pods with the restart policy Never or
	// OnFailure get the event in any case, because their containers might not start again,
	// and so do pods of an API server, where a pod that was stopped is Failed for good.
	RecreateUpdated bool

	// StatusSink receives the status of each pod. nil: statuses are only kept, see
	// [Agent.Pods]. A sink that is also a [status.EndSink] receives the end of each pod.
	StatusSink status.Sink
	// Event receives the events of pods: refusals, pulls, kills, probes, volumes. Those of
	// the node have no pod. Repeats are merged, see [runtime.MergeEvents]. nil: events are
	// logged.
	Event runtime.EventFunc
	// EveryEvent receives the same events, each as often as it happens, for receivers that
	// merge by themselves. The Event method of a *events.Recorder of cluster/events is one.
	// nil: nothing.
	EveryEvent runtime.EventFunc
	// History are the limits of what is kept of each pod: what was seen, decided and done.
	// Default of History.File: "history" in RootDir if there is a Checkpoint, otherwise none.
	// Default of History.Logger: that of the agent. The history is [Parts].History.
	History history.Options
	// Metrics receive what the parts do; nil fields receive nothing.
	Metrics Metrics
	// Host describes the machine to pods. nil: the result of [DetectHost].
	Host *runtime.Host
	// HostIPs returns the addresses of the node as they are now, as Host.IPs has them, and none
	// while they are unknown. It takes the place of Host.IPs. It is called for each status, sync
	// and probe, so it must be fast, and safe for concurrent use. nil: Host.IPs, and if that is
	// empty or Host is nil, the result of [DetectHostIPs]. A changed address is in the statuses
	// of pods with their next sync, after SyncFrequency at the latest; with [Agent.Sync] it is
	// there at once.
	HostIPs func() []string
	// Logger of the agent; each part gets it under a name of its own.
	Logger logr.Logger

	// Override replaces or wraps any of the parts.
	Override Overrides
}

// Metrics receive what the parts of an agent do. Nil fields receive nothing.
// metrics/prometheus implements all of them under kubelet's names. A panic of a method is
// logged, the first time, and does not end the agent.
type Metrics struct {
	PodConfig  podconfig.Metrics
	PLEG       pleg.Metrics
	PodWorkers podworkers.Metrics
	Status     status.Metrics
	Prober     prober.Metrics
	Volumes    volume.Metrics
	GC         gc.Metrics
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

// logLinksDir returns the directory of links to logs in podLogsDir; "" if there is none.
func logLinksDir(podLogsDir string) string {
	if filepath.Clean(podLogsDir) == kubeletPodLogsDir {
		return kubeletLogLinksDir
	}
	return ""
}

// complete fills in the defaults and returns all that is wrong at once.
func (o *Options) complete() error {
	var errs []error
	if o.Runtime == nil {
		errs = append(errs, errors.New("Options.Runtime is required; runtime/cri.Dial makes one from a CRI socket"))
	}
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(o.NodeName)); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("Options.NodeName %q: %s", o.NodeName, strings.Join(problems, "; ")))
	}
	if o.RootDir == "" {
		o.RootDir = DefaultRootDir
	}
	if o.PodLogsDir == "" {
		o.PodLogsDir = filepath.Join(o.RootDir, "logs")
		if filepath.Clean(o.RootDir) == kubeletRootDir {
			o.PodLogsDir = kubeletPodLogsDir
		}
	}
	for _, dir := range []struct{ name, value string }{{"RootDir", o.RootDir}, {"PodLogsDir", o.PodLogsDir}} {
		if !filepath.IsAbs(dir.value) {
			errs = append(errs, fmt.Errorf("field Options.%s %q: must be an absolute path", dir.name, dir.value))
		}
	}
	errs = append(errs, noNil("Sources", o.Sources), noNil("Admit", o.Admit), noNil("Volumes", o.Volumes), noNil("Probes", o.Probes))
	if o.SyncFrequency <= 0 {
		o.SyncFrequency = time.Minute
	}
	return errors.Join(errs...)
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
