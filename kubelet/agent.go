package kubelet

import (
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/local"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/admission"
	"github.com/kubeletkit/kubeletkit/node/cgroup"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/status"
)

// hooks receive what happens in the agent.
type hooks struct {
	sink    status.Sink
	event   runtime.EventFunc
	measure runtime.MeasureFunc
	// problem is called with each manifest that cannot be used, and with nil when it can
	// be used again.
	problem func(path string, err error)
}

// dialRuntime connects to the container runtime of the settings, and returns it with the
// cgroups of its pods; nil if they have none.
func dialRuntime(ctx context.Context, s *config.Settings, m *member, withCgroups bool, measure runtime.MeasureFunc,
	tracer Tracer, log logr.Logger) (rt *cri.Runtime, cgroups *cgroup.Pods, err error) {
	if withCgroups {
		if cgroups, err = s.Cgroups(func() string { return rt.Features().CgroupDriver }); err != nil {
			return nil, nil, err
		}
	}
	opts := runtimeOptions(s, measure, log)
	if tracer != nil {
		opts.CallStats = tracer.CallStats()
	}
	if cgroups != nil {
		opts.CgroupParent = cgroups.Parent
	}
	if m != nil {
		opts.RuntimeHandler = m.RuntimeHandler
	}
	rt, err = cri.Dial(ctx, s.ContainerRuntimeEndpoint, opts)
	return rt, cgroups, err
}

func runtimeOptions(s *config.Settings, measure runtime.MeasureFunc, log logr.Logger) cri.Options {
	return cri.Options{
		ImageEndpoint: s.ImageServiceEndpoint,
		CallTimeout:   s.RuntimeRequestTimeout.Duration,
		Backoff: plan.Backoff{Initial: s.FirstBackoff(),
			Max: s.CrashLoopBackOff.MaxContainerRestartPeriod.Duration},

		LogLinksDir:         s.LogLinksDir,
		SeccompProfileRoot:  filepath.Join(s.RootDir, "seccomp"),
		SeccompDefault:      *s.SeccompDefault,
		PodSysctls:          s.DefaultPodSysctls,
		NoCPUQuota:          !*s.CPUCFSQuota,
		CPUPeriod:           s.CPUCFSQuotaPeriod.Duration,
		KillProcessesSingly: ptr.Deref(s.SingleProcessOOMKill, false),

		Observer: runtime.Observer{Logger: log.WithName("cri"), Measure: measure},
	}
}

// agentOptions returns the composition of the agent that the settings describe.
func agentOptions(s *config.Settings, rt runtime.Runtime, h hooks, log logr.Logger) (kubeletkit.Options, error) {
	none := kubeletkit.Options{}
	node, err := s.NodeName()
	if err != nil {
		return none, err
	}
	host, err := detectHost(s, node)
	if err != nil {
		return none, err
	}
	ips, err := hostIPs(s)
	if err != nil {
		return none, err
	}
	sources, objects, err := podSources(s, h.problem, log)
	if err != nil {
		return none, err
	}
	kept, err := checkpointStore(s, log)
	if err != nil {
		return none, err
	}
	pulls, err := imageOptions(s, log)
	if err != nil {
		return none, err
	}
	policy := imagePolicy(s)
	if s.Embedded {
		policy = gc.ImagePolicy{HighThresholdPercent: 100} // images of the embedded runtime take no space
	}
	opts := kubeletkit.Options{
		NodeName: node,
		RootDir:  s.RootDir,
		// Processes of the embedded runtime mount nothing.
		ShareRootDir: s.OnMachine() && os.Geteuid() == 0,
		Runtime:      rt,
		Sources:      sources,
		API:          kubeletkit.API{Objects: objects},
		StatusSink:   h.sink,
		Observe:      kubeletkit.Observe{Event: h.event, Measure: h.measure, Logger: log},
		Host:         host,
		HostIPs:      ips,
		Admission:    kubeletkit.Admission{AllowedUnsafeSysctls: s.AllowedUnsafeSysctls},
		Workers:      podworkers.Options{ResyncInterval: s.SyncFrequency.Duration},
		Cache:        runtime.CacheOptions{InspectTimeout: s.RuntimeRequestTimeout.Duration},
		PLEG:         pleg.EventedOptions{WithoutEvents: !s.Evented()},
		Images:       pulls,
		Volumes:      s.Volumes(),
		Prober:       s.Probes(),
		GC: gc.Options{LogLinksDir: s.LogLinksDir,
			Policy: gc.Policy{MinAge: s.MinContainerTTL, MaxPerContainer: deadToKeep(s.MaxDeadPerName),
				MaxContainers: limit(int(s.MaxDead)), KeepLogs: local.KeepLogs}},
		ImageGC: gc.ImageOptions{ImagePolicy: policy},

		NoStorageEviction: !*s.LocalStorageCapacityIsolation,
		Join:              []lifecycle.Component{&ignoredFields{of: s.IgnoredFields()}},
	}
	if s.Kubeconfig != "" {
		// cluster.Node.Configure makes its admission of this.
		opts.Admission.Limits.MaxPods = limit(s.PodLimit(goruntime.NumCPU()))
	} else if err := joinAdmission(&opts, s, rt); err != nil {
		return none, err
	}
	if kept != nil { // nil in an interface would not be nil
		opts.Checkpoint = kept
	}
	return opts, nil
}

// joinAdmission adds the checks of a node without an API server: what that has of the node is not known.
func joinAdmission(opts *kubeletkit.Options, s *config.Settings, rt runtime.Runtime) error {
	node := &v1.Node{}
	node.Name = opts.NodeName
	node.Status.Allocatable = maps.Clone(opts.Host.Allocatable)
	node.Status.Allocatable[v1.ResourcePods] = *resource.NewQuantity(int64(s.PodLimit(goruntime.NumCPU())),
		resource.DecimalSI)
	admitter, err := admission.New(admission.Options{
		Node:             func() admission.Node { return admission.Node{Node: node} },
		DeclaredFeatures: func() []string { return s.DeclaredFeatures(true, featuresOf(rt)) },
		Logger:           opts.Observe.Logger.WithName("admission"),
	})
	if err != nil {
		return err
	}
	opts.Join = append(opts.Join, admitter)
	return nil
}

// ignoredFields is the component that emits an event about a pod with fields that have no effect.
type ignoredFields struct {
	node lifecycle.Node
	// of returns a sentence for each such field.
	of func(spec *v1.PodSpec) []string
}

// Name implements [lifecycle.Component].
func (*ignoredFields) Name() string { return "fields without effect" }

// Join implements [lifecycle.Joiner].
func (c *ignoredFields) Join(node lifecycle.Node) error {
	c.node = node
	return nil
}

// Admit implements [lifecycle.Admitter].
func (c *ignoredFields) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	if req.Held != nil { // a resize
		return lifecycle.AdmitResponse{}, nil
	}
	if all := c.of(&req.Pod.Spec); len(all) > 0 {
		c.node.Event(runtime.Event{Pod: runtime.RefOf(req.Pod), Type: v1.EventTypeWarning, Reason: "ManifestWarning",
			Message: strings.Join(all, "; ")})
	}
	return lifecycle.AdmitResponse{}, nil
}

// podCIDRRetry is the time after which the runtime gets the addresses of pods again if it has not accepted them.
const podCIDRRetry = 5 * time.Second

// addPodCIDR has the runtime get the addresses of pods. A node of a cluster has them in its object.
func addPodCIDR(opts *kubeletkit.Options, s *config.Settings, rt runtime.PodCIDRSetter) {
	if s.PodCIDR != "" && s.Kubeconfig == "" {
		opts.Join = append(opts.Join, &podCIDR{rt: rt, cidr: s.PodCIDR})
	}
}

// podCIDR is the component that hands the runtime the addresses of pods.
type podCIDR struct {
	rt   runtime.PodCIDRSetter
	cidr string
	log  logr.Logger
}

// Name implements [lifecycle.Component].
func (*podCIDR) Name() string { return "addresses of pods" }

// Join implements [lifecycle.Joiner].
func (c *podCIDR) Join(node lifecycle.Node) error {
	c.log = node.Logger()
	return nil
}

// Run implements [lifecycle.Runner].
func (c *podCIDR) Run(ctx context.Context) error {
	for {
		err := c.rt.SetPodCIDR(ctx, c.cidr)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		c.log.Error(err, "The runtime does not accept the addresses of pods; trying again", "podCIDR", c.cidr)
		select {
		case <-ctx.Done():
		case <-time.After(podCIDRRetry):
		}
	}
}

// imagePolicy translates the settings for [gc.ImagePolicy], in which 0 is the default and a
// negative number is 0.
func imagePolicy(s *config.Settings) gc.ImagePolicy {
	low := int(*s.ImageGCLowThresholdPercent)
	if low == 0 {
		low = -1
	}
	return gc.ImagePolicy{
		HighThresholdPercent: int(*s.ImageGCHighThresholdPercent), LowThresholdPercent: low,
		MinAge: s.ImageMinimumGCAge.Duration, MaxAge: s.ImageMaximumGCAge.Duration, Keep: s.KeepImages,
	}
}

// limit translates a setting in which 0 permits none and a negative number any number, for an option in which 0 is no
// limit and a negative number permits none.
func limit(n int) int {
	switch {
	case n < 0:
		return 0
	case n == 0:
		return -1
	default:
		return n
	}
}

// deadToKeep translates a flag, in which 0 keeps none and a negative number all, for
// [gc.Policy], in which 0 is the default and a negative number keeps none.
func deadToKeep(flag int32) int {
	switch {
	case flag < 0:
		return math.MaxInt
	case flag == 0:
		return -1
	default:
		return int(flag)
	}
}
