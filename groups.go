package kubeletkit

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

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
	// NodeAllocatable returns what pods can have of the node as it is now, in place of Host.Allocatable. It must not block,
	// and is safe for concurrent use; the result is not changed. nil: Host.Allocatable.
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

// Plugins are tried, in order, before those of the packages volume and prober.
type Plugins struct {
	// Volumes are plugins that are tried, in order, before those of package volume. A
	// plugin that has the name of one of these needs a [volume.Reconciler] without default
	// plugins, in Override.Volumes.
	Volumes []volume.Plugin
	// Probes are handlers of probes that are tried, in order, before those of package
	// prober.
	Probes []prober.Handler
}

// GC decides what is removed from the runtime. The zero value is kubelet's.
type GC struct {
	// Containers decides which dead containers stay. Default: the newest of each.
	Containers gc.Policy
	// ContainerPlan decides what garbage collection removes, in place of [gc.Plan]. nil: gc.Plan
	// with the policy Containers. If it is set, dead containers of crash loops stay until the next
	// collection.
	ContainerPlan gc.PlanFunc
	// Cgroups removes the cgroups of pods that are gone; a *cgroup.Pods of node/cgroup
	// does. The cgroups below its root must belong to this agent alone. nil: the first component of Join that is
	// a [gc.Cgroups], such as a *cgroup.Manager; without one they are left alone.
	Cgroups gc.Cgroups
	// LogLinksDir is the directory of links to the logs of containers, as runtime/cri makes them: those of pods that are gone
	// are removed. Default: kubelet's /var/log/containers for logs in /var/log/pods, else there are no links.
	LogLinksDir string
	// Images decides when and which images are removed. Default: kubelet's, from 85 % usage
	// of their file system down to 80 %. It has no effect if Runtime is no
	// [runtime.ImageService], itself or through Unwrap.
	Images gc.ImagePolicy
	// ImagePlan decides which images are removed, in place of [gc.PlanImages]. nil:
	// gc.PlanImages with the policy Images.
	ImagePlan gc.ImagePlanFunc
}

// Sync has how pods are synced.
type Sync struct {
	// Frequency is the time between two syncs of a pod to which nothing happens.
	// Default 1 minute, as kubelet.
	Frequency time.Duration
	// RecreateUpdated stops a pod and starts it again when an update under its UID
	// changes a field that does not act on running containers, such as a command. If it
	// is false, only an event names these fields. Pods with the restart policy Never or
	// OnFailure get the event in any case, because their containers might not start again,
	// and so do pods of an API server, where a pod that was stopped is Failed for good.
	RecreateUpdated bool
}

// Observe receives what the agent does. The agent does not wait for the receivers: each has a queue of 4096, and a goroutine
// while it is not empty, which calls the receiver one at a time and in order. A receiver that blocks loses what does not
// fit; the number is logged. A panic is logged, the first one of each method. At its end, [Agent.Run] waits 3 s at most for receivers that
// have not returned. The Logger is called directly, and must not block.
type Observe struct {
	// Event receives the events of pods: refusals, pulls, kills, probes, volumes. Those of
	// the node have no pod. Repeats are merged, see [runtime.MergeEvents]. nil: they are
	// logged, warnings at level 0 and others at level 2.
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
	// Logger of the agent; each part gets it under a name of its own. Default, here and in the options of all packages: that of
	// package slog. The logger logr.FromSlogHandler(slog.DiscardHandler) discards; logr.Discard returns the zero value, which is
	// the default.
	Logger logr.Logger
}

// Metrics receive what the parts of an agent do. Nil fields receive nothing.
// metrics/prometheus implements all of them under kubelet's names. Like all receivers of [Observe], they
// hold up nothing.
type Metrics struct {
	PodConfig  podconfig.Metrics
	PLEG       pleg.Metrics
	PodWorkers podworkers.Metrics
	Status     status.Metrics
	Prober     prober.Metrics
	Volumes    volume.Metrics
	Images     images.Metrics
	GC         gc.Metrics
}
