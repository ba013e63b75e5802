package stats

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// readTimeout bounds a reading. It is the timeout of Prometheus for a scrape.
const readTimeout = 10 * time.Second

// Options are the settings of a [Collector]. The zero value is valid.
type Options struct {
	// Period is how long a reading is returned again before the next one. Default: 5 s. (With
	// kubelet, the figures of cAdvisor are 10 to 15 s old.)
	Period time.Duration
	// DiskPeriod is the time between two measurements of the volumes and logs of a pod.
	// Default: 1 minute, kubelet's volumeStatsAggPeriod. Negative: they are not measured.
	DiskPeriod time.Duration

	// RootDir is the root directory of the agent, whose file system is that of the node. If
	// empty, it is not measured, nor are volumes. The directory of a pod is pods/<UID> in it.
	RootDir string
	// PodLogsDir is the directory of the logs of pods. If empty, they are not measured.
	PodLogsDir string
	// PodCgroup returns the cgroup of a pod, as in "/kubepods/besteffort/pod1234", for pods of
	// a runtime that does not report their usage. The method Parent of a *cgroup.Pods of
	// node/cgroup does. nil: the usage of such pods is unknown.
	//
	// It is also where the paths of the cgroups of pods and containers are looked up. If nil, they are not known.
	PodCgroup func(pod *v1.Pod) string
	// NodeCgroups returns the cgroups to measure beside those of pods: of all pods, of the agent, of the runtime. It
	// must not block. nil: none.
	NodeCgroups func() []NodeCgroup
	// proc and cgroup are /proc and /sys/fs/cgroup in tests.
	proc, cgroup string
}

func (o *Options) setDefaults() {
	if o.Period <= 0 {
		o.Period = 5 * time.Second
	}
	if o.DiskPeriod == 0 {
		o.DiskPeriod = time.Minute
	}
	if o.proc == "" {
		o.proc = "/proc"
	}
	if o.cgroup == "" {
		o.cgroup = "/sys/fs/cgroup"
	}
}

// Collector reads the usage of the node and its pods on request, at most once
// a period. It is a component of an agent. It is safe for concurrent use.
type Collector struct {
	opts    Options
	rt      runtime.Runtime
	node    lifecycle.Node
	log     logr.Logger
	machine machine
	usage   *shared[*Reading]
	disk    *disk
	extra   *extra
	// rates and paths belong to the reading in progress.
	rates rates
	paths containerPaths
}

var (
	_ lifecycle.Joiner = (*Collector)(nil)
	_ lifecycle.Runner = (*Collector)(nil)
)

// New returns a Collector of the pods of the runtime. It reads nothing.
func New(rt runtime.Runtime, opts Options) (*Collector, error) {
	var errs []error
	if rt == nil {
		errs = append(errs, errors.New("stats: a runtime is required"))
	}
	for _, dir := range []struct{ field, value string }{{"RootDir", opts.RootDir}, {"PodLogsDir", opts.PodLogsDir}} {
		if dir.value != "" && !filepath.IsAbs(dir.value) {
			errs = append(errs, fmt.Errorf("stats: Options.%s %q must be an absolute path", dir.field, dir.value))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	opts.setDefaults()
	cg := cgroups{mount: opts.cgroup}
	c := &Collector{opts: opts, rt: rt, machine: machine{proc: opts.proc, cgroups: cg}, rates: rates{}}
	c.usage = newShared(opts.Period, readTimeout, c.read)
	c.disk = newDisk(&c.opts)
	c.extra = newExtra(rt, &c.opts)
	return c, c.Join(lifecycle.NopNode{})
}

// Name implements [lifecycle.Component].
func (c *Collector) Name() string { return "stats" }

// Join implements [lifecycle.Joiner]. The node has the pods, their statuses in the runtime and the usage of their
// volumes.
func (c *Collector) Join(node lifecycle.Node) error {
	c.node, c.log = node, node.Logger()
	c.disk.node, c.disk.log, c.extra.log = node, c.log, c.log
	return nil
}

// Reading is the usage of the node and its pods at one time. It is shared between readers and
// read-only.
type Reading struct {
	Time    time.Time
	Machine Machine
	// Summary has the pods in the order of their namespaces and names.
	Summary statsv1alpha1.Summary
	// Pods has what is known of Summary.Pods beyond their usage, in the same order.
	Pods []PodDetails
	// Cgroups are those of Options.NodeCgroups that exist.
	Cgroups []NodeCgroupUsage
	// Err is why the usage of pods is missing; nil if it is not.
	Err error

	json encodings
}

// PodDetails describes a pod of a [Reading].
type PodDetails struct {
	SandboxID string
	// Shadowed means that a newer pod has its namespace and name.
	Shadowed bool
	// CgroupPath is the path of its cgroup, as in "/kubepods/besteffort/pod1234"; "" if its sandbox is not in it.
	CgroupPath string
	// Cgroup is what the kernel counts for the pod; nil if the runtime has reported its usage.
	Cgroup *CgroupUsage
	// Containers are those of the pod, in the same order.
	Containers []ContainerDetails
}

// ContainerDetails describes a container of a [Reading].
type ContainerDetails struct {
	// ID is the ID of the container, without the type of the runtime, Image the name of its
	// image.
	ID, Image string
	// CgroupPath is the path of its cgroup; "" if it is not known.
	CgroupPath string
	// Cgroup is what the kernel counts for it; nil if the runtime has reported its usage.
	Cgroup *CgroupUsage
}

// Read returns the last reading, or if it is older than the period, a new one. Callers at the
// same time share it. The error is that of ctx; what cannot be read is missing in the reading.
// Volumes and logs are as old as [Collector.Summary] and [Collector.Disk] have had them measured.
func (c *Collector) Read(ctx context.Context) (*Reading, error) { return c.usage.get(ctx) }

// Run measures the volumes and logs of pods after [Collector.Summary] or [Collector.Disk] were
// called, reads the further metrics of the runtime after [Collector.Extra], and makes readings
// shortly before those who read regularly, until ctx ends. It returns nil. Without it, a reading
// lacks volumes, logs and further metrics. It is to be called once.
func (c *Collector) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	beside.Go(func() { c.usage.run(ctx) })
	beside.Go(func() { c.extra.run(ctx) })
	c.disk.run(ctx, c.allPods)
	beside.Wait()
	return nil
}

// allPods returns the pods, those first that are to run under their name.
func (c *Collector) allPods() []*v1.Pod {
	pods := c.node.Pods()
	out := make([]*v1.Pod, 0, len(pods))
	var leaving []*v1.Pod
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil {
			out = append(out, pod)
		} else {
			leaving = append(leaving, pod)
		}
	}
	return append(out, leaving...)
}

// read makes a reading. What cannot be read is missing.
func (c *Collector) read(ctx context.Context) (*Reading, error) {
	r := &Reading{Time: time.Now()}
	r.Machine, r.Summary.Node = c.machine.read(r.Time)
	node := &r.Summary.Node
	node.NodeName = c.node.NodeName()
	c.rates.begin()
	c.rates.of("", node.CPU)
	c.system(r)
	files := fileSystems{}
	if c.opts.RootDir != "" {
		node.Fs = files.whole(c.opts.RootDir, r.Time)
	}
	known := describe(c.allPods(), c.node.RuntimeStatus)
	usage, err := c.podUsage(ctx, known, r.Time)
	if err != nil {
		r.Err = fmt.Errorf("usage of the pods: %w", err)
		c.log.Info("The usage of pods cannot be read", "reason", err.Error())
	} else {
		node.Runtime = c.imageFs(ctx, files, r.Time)
		r.join(known, usage, c.rates, files, c.disk)
		c.paths.name(r, known, c)
		c.rates.end() // else the samples are those of the next reading
	}
	return r, nil
}

// podUsage returns the usage of pods as the runtime reports it, or that of their cgroups.
func (c *Collector) podUsage(ctx context.Context, known []knownPod, now time.Time) (usageByID, error) {
	reporter, ok := runtime.Optional[runtime.UsageReporter](c.rt)
	if ok {
		var u runtime.Usage
		err := runtime.Recover(func() (err error) {
			u, err = reporter.ListUsage(ctx)
			return err
		})
		if !errors.Is(err, errors.ErrUnsupported) {
			return usageOf(&u, now), err
		}
	}
	if c.opts.PodCgroup == nil {
		return usageByID{}, fmt.Errorf("the runtime does not report it, and Options.PodCgroup is nil: %w",
			errors.ErrUnsupported)
	}
	return c.machine.pods(known, c.opts.PodCgroup, now), nil
}

// imageFs returns the file systems of the runtime; nil if it reports none.
func (c *Collector) imageFs(ctx context.Context, files fileSystems, now time.Time) *statsv1alpha1.RuntimeStats {
	images, ok := runtime.Optional[runtime.ImageService](c.rt)
	if !ok {
		return nil
	}
	var info runtime.ImageFsInfo
	err := runtime.Recover(func() (err error) {
		info, err = images.ImageFsInfo(ctx)
		return err
	})
	if err != nil {
		c.log.V(1).Info("The file system of images cannot be read", "reason", err.Error())
		return nil
	}
	out := &statsv1alpha1.RuntimeStats{ImageFs: files.part(info.Images, now)}
	out.ContainerFs = out.ImageFs
	if info.Containers != nil {
		out.ContainerFs = files.part(*info.Containers, now)
	}
	return out
}
