package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/systemd"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are what a program adds to a kubelet. The zero value is a kubelet without additions.
type Options struct {
	// Name is the name of the program: in messages, in the help of its commands and in requests to an API server. With
	// the embedded runtime, the root directory is /var/lib/<Name> by default. It has letters, digits, "-", "_" and
	// "."; default "kubeletkit".
	Name string
	// Version is the version of the program. Default: that of the main module.
	Version string
	// Configuration is a KubeletConfiguration (kubelet.config.k8s.io/v1beta1) that files and flags win over: a
	// *KubeletConfiguration of k8s.io/kubelet/config/v1beta1, or a value with the same JSON. Its type is any because
	// that package links the metrics registry of Kubernetes. nil: kubelet's defaults.
	Configuration any

	// Join are components beside those of the kubelet, see [kubeletkit.Options]. They come after them, unless they
	// declare another order, see [lifecycle.Ordered].
	Join []lifecycle.Component
	// Sources deliver pods, beside the manifests and the API server of the configuration.
	Sources []podconfig.Source
	// Volumes are types of volumes, and Probes types of probes. They are tried, in order, before those of the agent.
	Volumes []volume.Plugin
	Probes  []prober.Handler
	// PersistentVolumes are types of persistent volumes. They are tried, in order, before those of the agent.
	PersistentVolumes []volume.PersistentPlugin
	// Override replaces or wraps parts of the agent.
	Override kubeletkit.Overrides
	// Runtime runs the pods, in place of the runtime of the configuration. The caller closes it. Its containers are not
	// those of a container runtime of this machine, so they have no cgroups by the kubelet and no CPUs or memory nodes,
	// and the kubelet makes no settings of the machine or the process but those that are given. The root directory and
	// that of logs are not kubelet's by default. nil: the runtime of --container-runtime-endpoint.
	Runtime runtime.Runtime
	// WrapRuntime puts a runtime around that of the kubelet. It has a method Unwrap() any that returns the runtime, see
	// [runtime.Optional]: [New] fails if an ability is lost. nil: none does.
	WrapRuntime func(rt runtime.Runtime) runtime.Runtime
	// Without are the capabilities that the kubelet does not have.
	Without []Capability

	// Logger receives what the kubelet logs. nil: [Main] and [Command] log to the standard error as the configuration
	// says, and [New] logs by package slog.
	Logger logr.Logger
	// Event receives each event of a pod or of the node, beside the log. It must not block. nil: nothing receives them.
	Event runtime.EventFunc
	// RegisterMetrics registers metrics of the program in those of /metrics. nil: there are none.
	RegisterMetrics func(prometheus.Registerer) error
	// Tracing returns the tracer of a configuration that has tracing, such as New of package otlp in module
	// metrics/tracing. It must not wait for the collector. nil: tracing has no effect, which is a warning.
	Tracing func(ctx context.Context, config TracingConfig) (Tracer, error)
	// Commands are further commands of the program, among the other commands of its help. They belong to this program.
	// One with the name of a command of the kubelet replaces it.
	Commands []*cobra.Command
	// Getenv returns variables of the environment: those of the root directory of a user that is not root, and of
	// colors. Default of Main: os.Getenv. nil: there are none.
	Getenv func(name string) string

	process processOptions
}

// processOptions are what [Main] and [Command] give a kubelet of their process.
type processOptions struct {
	// out and err are where the pods and the log are shown. If nil, the kubelet is in a program that has not given it
	// the terminal.
	out, err io.Writer
	// onAgent is called when the arguments name the kubelet, and not one of its commands; nil: nothing is.
	onAgent func()
	// onNew is called when a kubelet begins in a process of its own, with its logger: klog, by which libraries log, has
	// one logger in a process, and systemd one service. nil: the process is not that of the kubelet.
	onNew func(logr.Logger) *systemd.Notifier
	// onJoin is called with the components before the agent is made, for tests that change their order. nil: nothing
	// is.
	onJoin func([]lifecycle.Component)
}

func (o *Options) program() config.Program {
	return config.Program{Name: cmp.Or(o.Name, "kubeletkit"), Getenv: o.Getenv, Configuration: o.Configuration,
		OwnRuntime: o.Runtime != nil, VolumePlugins: len(o.Volumes)+len(o.PersistentVolumes) > 0,
		Storage: o.has(Storage),
		Tracing: o.Tracing != nil}
}

// validateProgram returns what is wrong with the options of a program, whatever it runs.
func (o *Options) validateProgram() error {
	var errs []error
	for i, cmd := range o.Commands {
		if cmd == nil {
			errs = append(errs, fmt.Errorf("field Options.Commands[%d] is nil", i))
		}
	}
	for i := range o.Name {
		if c := o.Name[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' ||
			c == '_' || c == '.' && i > 0) {
			errs = append(errs, fmt.Errorf("field Options.Name %q has a character other than letters, digits, \"-\", "+
				"\"_\" and \".\" in it", o.Name))
			break
		}
	}
	return errors.Join(errs...)
}

// validate returns what is wrong with the options, for a kubelet with the settings.
func (o *Options) validate(s *config.Settings) error {
	errs := []error{o.validateProgram()}
	for i, c := range o.Join {
		if c == nil {
			errs = append(errs, fmt.Errorf("field Options.Join[%d] is nil", i))
		}
	}
	for _, c := range o.Without {
		i := slices.IndexFunc(capabilities, func(k capability) bool { return k.name == c })
		if i < 0 {
			errs = append(errs, fmt.Errorf("field Options.Without: there is no capability %q", c))
			continue
		}
		if demand := capabilities[i].demand; demand != nil && demand(s) != "" {
			errs = append(errs, fmt.Errorf("field Options.Without has %q, and the configuration has %s, which needs it",
				c, demand(s)))
		}
	}
	if has := placementDemand(s); o.Runtime != nil && has != "" {
		errs = append(errs, fmt.Errorf("the configuration has %s, which needs a container runtime of this machine and "+
			"not that of field Options.Runtime", has))
	}
	return errors.Join(errs...)
}

// has reports whether the kubelet has the capability.
func (o *Options) has(c Capability) bool { return !slices.Contains(o.Without, c) }

// Capability is something that a kubelet can do without.
type Capability string

// The capabilities. The configuration decides which of them the kubelet uses.
const (
	// Cgroups are the cgroups of pods. Without them, pods with limits of their own are refused.
	Cgroups Capability = "cgroups"
	// Cluster is the membership of a cluster. A kubeconfig needs it.
	Cluster Capability = "cluster"
	// Devices are those of device plugins.
	Devices Capability = "devices"
	// DynamicResources are resource claims. Without them, pods with claims wait.
	DynamicResources Capability = "dynamic resources"
	// Eviction ends pods while the node is short of a resource.
	Eviction Capability = "eviction"
	// ImageRecords are records of who may use an image. imagePullCredentialsVerificationPolicy needs them.
	ImageRecords Capability = "image records"
	// LogRotation rotates the logs of containers.
	LogRotation Capability = "log rotation"
	// OOM reports kills for lack of memory, and gives pods swap.
	OOM Capability = "OOM"
	// Placement is the choice of CPUs and memory nodes. cpuManagerPolicy: static, memoryManagerPolicy: Static
	// and a topologyManagerPolicy need it.
	Placement Capability = "placement"
	// PodResources is kubelet's socket for monitors of devices.
	PodResources Capability = "pod resources"
	// PodsAPI is kubelet's socket for programs of the node that read pods.
	PodsAPI Capability = "pods API"
	// Server are the ports. The socket for the commands of the program is no part of it.
	Server Capability = "server"
	// Shutdown ends pods before the machine shuts down. shutdownGracePeriod needs it.
	Shutdown Capability = "shutdown"
	// Stats are the usages of the node and of pods.
	Stats Capability = "stats"
	// Storage are volumes of CSI drivers, of NFS servers and on local disks. Without it, pods with such volumes wait.
	Storage Capability = "storage"
	// Users are users of a pod's own (hostUsers: false).
	Users Capability = "users"
)

// capability is a capability, and what of a configuration needs it.
type capability struct {
	name Capability
	// demand returns the setting that needs the capability, "" if none does; nil: no setting needs it.
	demand func(s *config.Settings) string
}

// given returns the text if the setting is given.
func given(is bool, text string) string {
	if !is {
		return ""
	}
	return text
}

// placementDemand returns the setting that needs Placement. The embedded runtime places nothing, which is a warning.
func placementDemand(s *config.Settings) string {
	return cmp.Or(given(!s.Embedded && s.CPUManagerPolicy == "static", "cpuManagerPolicy: static"),
		given(!s.Embedded && s.MemoryManagerPolicy == "Static", "memoryManagerPolicy: Static"),
		given(!s.Embedded && s.TopologyManagerPolicy != topology.PolicyNone, "topologyManagerPolicy"))
}

// capabilities are all capabilities.
var capabilities = []capability{
	{Cgroups, func(s *config.Settings) string {
		const names = "enforceNodeAllocatable, --enforce-node-allocatable, qosReserved, --qos-reserved, podPidsLimit, " +
			"--pod-max-pids"
		return given(!s.Embedded && s.Has(strings.Split(names, ", ")...), "one of "+names)
	}},
	{Cluster, func(s *config.Settings) string { return given(s.Kubeconfig != "", "--kubeconfig") }},
	{Devices, nil},
	{DynamicResources, nil},
	{Eviction, func(s *config.Settings) string {
		return given(s.Has("evictionHard", "--eviction-hard", "evictionSoft", "--eviction-soft"),
			"evictionHard or evictionSoft")
	}},
	{ImageRecords, func(s *config.Settings) string {
		return given(s.Has("imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist"),
			"imagePullCredentialsVerificationPolicy or preloadedImagesVerificationAllowlist")
	}},
	{LogRotation, nil},
	{OOM, nil},
	{Placement, placementDemand},
	{PodResources, nil},
	{PodsAPI, nil},
	{Server, nil},
	{Shutdown, func(s *config.Settings) string {
		return given(len(s.ShutdownPeriods()) > 0, "shutdownGracePeriod")
	}},
	{Stats, nil},
	{Storage, nil},
	{Users, nil},
}
