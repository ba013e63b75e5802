package cri

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/stats"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// Options are the settings of a [Runtime]. The zero value is valid.
type Options struct {
	// Observer receives the measurements [Call], [SandboxStart], [PodStart] and [ContainerStart]. Its Logger has what
	// no method returns as an error. Close waits for it, 3 s at most.
	runtime.Observer

	// ImageEndpoint is the endpoint of the image service, if another daemon has it.
	// Default: the endpoint of the runtime service.
	ImageEndpoint string
	// CallTimeout bounds every call. It is added to the grace period of a stop. Image
	// pulls and commands are not bounded by it. Default: 2 minutes, kubelet's
	// runtimeRequestTimeout.
	CallTimeout time.Duration
	// MaxMessageSize is the limit for a response in bytes; no memory is reserved for it.
	// A container takes about 1 kB in a list that is not streamed, and an agent whose
	// list exceeds the limit cannot work (kubernetes#63858). Default: 128 MiB, more than
	// the send limits of runtimes (containerd 16 MiB, CRI-O 80 MiB).
	MaxMessageSize int

	// CallStats receives the calls, as for spans. nil: nothing does.
	CallStats stats.Handler

	// Backoff is the back-off of crashing containers. Default: see [plan.Backoff].
	Backoff plan.Backoff
	// MaxParallelStarts is the number of concurrent calls that start a sandbox or a
	// container. Other calls wait; those of pods that have a sandbox go first. A call
	// that takes longer than 3 s no longer counts. Default: 2 for each processor, at
	// least 8.
	MaxParallelStarts int
	// MaxParallelEnds is the number of concurrent calls that stop or remove a sandbox or
	// remove a container. Other calls wait. A call that takes longer than 3 s no longer counts.
	// The stop of a container counts as one of them for 100 ms, in which the runtime sends the
	// signal. Afterwards 32 stops, which use their grace period, count as one, for a minute at most.
	// When the grace period has ended, the runtime kills the container, and 8 stops count as one,
	// for a minute at most. What is removed waits up to a minute for what is to be stopped.
	// The grace period of a pod begins when its first container is stopped. The
	// containers of pods that go on to run, such as those with a failed liveness probe, have a
	// bound of their own of the same size. Default: that of MaxParallelStarts. Negative: no
	// bound.
	MaxParallelEnds int

	// RuntimeHandler returns the runtime handler of a runtime class. Default: the name of
	// the class.
	RuntimeHandler func(class string) (handler string, err error)
	// CgroupParent returns the parent cgroup of a pod, in the form of the runtime's cgroup
	// driver, which [Runtime.Features] returns after the first [Runtime.Check]. A runtime
	// makes the cgroup if it does not exist; see package node/cgroup, which has
	// kubelet's names. Default: the runtime chooses, and one with the driver systemd may
	// start no pod.
	CgroupParent func(pod *v1.Pod) string

	// LogLinksDir is the directory for a link to the log of each container, which some log
	// shippers read. Default: kubelet's /var/log/containers for logs in /var/log/pods, else
	// there are no links.
	LogLinksDir string
	// SeccompProfileRoot is the directory of localhost seccomp profiles. Default:
	// /var/lib/kubelet/seccomp.
	SeccompProfileRoot string
	// SeccompDefault makes RuntimeDefault the profile of containers without a profile
	// (kubelet's seccompDefault). Default: Unconfined.
	SeccompDefault bool
	// PodSysctls are kernel parameters of each pod that has a namespace of its own for them, and does not set them
	// itself (kubelet's defaultPodSysctls).
	PodSysctls map[string]string
	// NoCPUQuota disables the enforcement of CPU limits (kubelet's cpuCFSQuota: false).
	NoCPUQuota bool
	// CPUPeriod is the period over which CPU limits are enforced. Default: 100 ms, as in
	// the kernel.
	CPUPeriod time.Duration
	// KillProcessesSingly makes the kernel kill one process of a container that has
	// exceeded its memory limit, instead of all (kubelet's singleProcessOOMKill).
	KillProcessesSingly bool

	// transport is the transport of HTTP hooks in tests.
	transport http.RoundTripper
}

func (o *Options) setDefaults() {
	o.Logger = logging.OrDefault(o.Logger)
	if o.CallTimeout <= 0 {
		o.CallTimeout = 2 * time.Minute
	}
	if o.MaxMessageSize <= 0 {
		o.MaxMessageSize = 128 << 20
	}
	if o.MaxParallelStarts <= 0 {
		o.MaxParallelStarts = defaultParallel()
	}
	if o.MaxParallelEnds == 0 {
		o.MaxParallelEnds = defaultParallel()
	}
	if o.MaxParallelEnds < 0 {
		o.MaxParallelEnds = unbounded
	}
	if o.SeccompProfileRoot == "" {
		o.SeccompProfileRoot = "/var/lib/kubelet/seccomp"
	}
}

// Runtime runs pods over a CRI v1 service. It implements [runtime.Runtime],
// [runtime.EventSource] and [runtime.ImageService]. None of its goroutines outlives the call of a method. It is safe
// for concurrent use.
type Runtime struct {
	rs   criv1.RuntimeServiceClient
	is   criv1.ImageServiceClient
	opts Options
	// waitForObserver is called by Close.
	waitForObserver func()
	endpoint        string
	closers         []io.Closer

	// version is the runtime's answer to Version, nil until it is known.
	version atomic.Pointer[criv1.VersionResponse]
	// handlers are the runtime handlers, sorted by name; nil until they are known.
	handlers atomic.Pointer[[]runtime.Handler]
	// groupsPolicy, mountOptions, hostProcesses and cgroupDriver are the features of the runtime; cgroupDriver is nil
	// until it is known.
	groupsPolicy, mountOptions, hostProcesses atomic.Bool
	cgroupDriver                              atomic.Pointer[string]
	// unstreamed is true if the runtime does not implement the streaming list calls.
	unstreamed atomic.Bool
	// unlinked is true if the latest link to a log could not be made.
	unlinked atomic.Bool
	// hostFiles reads the host's resolver configuration.
	hostFiles safefile.Reader
	// node returns the facts of the machine, which are read once.
	node   func() *translate.Node
	starts *gate
	// ends is the gate of pods that end, restarts that of pods that go on to run: they do not
	// wait for those that end.
	ends, restarts *gate
	pods           memory
	index          index
	// stopped has the sandboxes that were stopped and not removed. A sandbox never runs
	// again.
	stopped sandboxSet
	// left has the sandboxes that are left to run until they are removed, see removal.
	left    sandboxSet
	removal removal
	// stops and removals are those in progress, by the ID of the sandbox or container.
	stops, removals flow.Shares[struct{}]
	// lists are those of inspections that need one. A runtime reads all pods also for a list of one
	// pod, so a list for each of n pods would cost the square of n.
	lists *series[podLists]
	// uses keeps images from being removed while containers are made from them.
	uses imageUses
}

var (
	_ runtime.Runtime         = (*Runtime)(nil)
	_ runtime.EventSource     = (*Runtime)(nil)
	_ runtime.FeatureReporter = (*Runtime)(nil)
)

// New returns a Runtime over the given clients. The caller closes their connections. New
// makes no call.
func New(rs criv1.RuntimeServiceClient, is criv1.ImageServiceClient, opts Options) *Runtime {
	opts.setDefaults()
	observer, wait := opts.Queued()
	opts.Observer = observer
	r := &Runtime{rs: rs, is: is, opts: opts, waitForObserver: wait,
		endpoint: "the given client"}
	r.lists = newSeries[podLists]()
	r.starts = newGate(opts.MaxParallelStarts)
	stops := stopsPerCall * min(opts.MaxParallelEnds, unbounded)
	r.ends, r.restarts = newGate(stops), newGate(stops)
	r.pods.idle = 2 * max(r.opts.Backoff.Max, 10*time.Minute)
	r.node = sync.OnceValue(func() *translate.Node { return findNode(&opts) })
	return r
}

// Close closes the connections that [Dial] has made. Calls in progress fail.
func (r *Runtime) Close() error {
	var errs []error
	for _, c := range r.closers {
		errs = append(errs, c.Close())
	}
	r.waitForObserver()
	return errors.Join(errs...)
}

// typeName returns the runtime's name, which is the type of all container IDs. It makes
// one call in the life of a Runtime.
func (r *Runtime) typeName(ctx context.Context) (string, error) {
	if v := r.version.Load(); v != nil {
		return v.GetRuntimeName(), nil
	}
	resp, err := call(ctx, r, "Version", "", 0, r.rs.Version, &criv1.VersionRequest{})
	if err != nil {
		return "", err
	}
	name := resp.GetRuntimeName()
	if name == "" {
		return "", errors.New("the runtime's response to Version has no name")
	}
	r.version.Store(resp)
	return name, nil
}
