package cri

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
)

// Options are the settings of a [Runtime]; the zero value is good.
type Options struct {
	// Logger receives what no method returns as an error. Default: discards.
	Logger logr.Logger
	// Metrics receives measurements. Default: discards.
	Metrics Metrics

	// ImageEndpoint serves images where another daemon does so. Default: the endpoint
	// of the containers.
	ImageEndpoint string
	// CallTimeout bounds every call but image pulls, which end with their context
	// only; calls that wait on purpose, for a grace period or a command, get it on
	// top. Default: 2 minutes, kubelet's runtimeRequestTimeout.
	CallTimeout time.Duration
	// MaxMessageSize of a response in bytes; nothing is reserved for it. A container takes
	// about 1 kB of a list that is not streamed, and a node whose list is larger can do
	// nothing any more (kubernetes#63858). Default: 128 MiB, above what runtimes send by
	// default (containerd 16 MiB, CRI-O 80 MiB).
	MaxMessageSize int

	// Backoff of containers that crash. Default: see [plan.Backoff].
	Backoff plan.Backoff
	// PullBackoffInitial and PullBackoffMax bound the delay after a failed pull, which
	// doubles with every failure of the same image in the same pod. Default: 10 s and
	// 300 s, as in kubelet.
	PullBackoffInitial, PullBackoffMax time.Duration
	// SerializePulls lets one image pull run at a time; else MaxParallelPulls may,
	// with 0 for no bound.
	SerializePulls   bool
	MaxParallelPulls int

	// MaxParallelStarts is how many calls that start a sandbox or a container are
	// under way at once; the others wait their turn, those of pods that have begun
	// first. A call that takes longer than 3 s counts no more. Default: 2 for each
	// processor, 8 at least.
	MaxParallelStarts int

	// RuntimeHandler finds the runtime handler of a runtime class. Default: the handler
	// is called as the class is.
	RuntimeHandler func(class string) (handler string, err error)
	// CgroupParent of a pod, in the form that the runtime's cgroup driver wants; the
	// cgroup must exist. Default: the runtime chooses.
	CgroupParent func(pod *v1.Pod) string

	// SeccompProfileRoot is the directory of localhost seccomp profiles. Default:
	// /var/lib/kubelet/seccomp.
	SeccompProfileRoot string
	// SeccompDefault makes RuntimeDefault the profile of containers that name none
	// (kubelet's seccompDefault). Default: Unconfined.
	SeccompDefault bool
	// NoCPUQuota leaves CPU limits unenforced (kubelet's cpuCFSQuota: false).
	NoCPUQuota bool
	// CPUPeriod over which CPU limits are enforced. Default: 100 ms, the kernel's.
	CPUPeriod time.Duration
	// KillProcessesSingly lets the kernel choose which process of a container that has
	// used up its memory dies; by default all do (kubelet's singleProcessOOMKill).
	KillProcessesSingly bool

	// transport of HTTP hooks, in tests.
	transport http.RoundTripper
}

func (o *Options) setDefaults() {
	if o.Metrics == nil {
		o.Metrics = NopMetrics{}
	}
	if o.CallTimeout <= 0 {
		o.CallTimeout = 2 * time.Minute
	}
	if o.MaxMessageSize <= 0 {
		o.MaxMessageSize = 128 << 20
	}
	if o.PullBackoffInitial <= 0 {
		o.PullBackoffInitial = 10 * time.Second
	}
	if o.PullBackoffMax <= 0 {
		o.PullBackoffMax = 300 * time.Second
	}
	o.PullBackoffInitial = min(o.PullBackoffInitial, o.PullBackoffMax)
	if o.MaxParallelStarts <= 0 {
		o.MaxParallelStarts = defaultStarts()
	}
	if o.SeccompProfileRoot == "" {
		o.SeccompProfileRoot = "/var/lib/kubelet/seccomp"
	}
}

// Runtime runs pods over a CRI v1 service. It fulfils [runtime.Runtime] and
// [runtime.EventSource], starts no goroutine that outlives the call it serves, and is safe for concurrent use.
type Runtime struct {
	rs       criv1.RuntimeServiceClient
	is       criv1.ImageServiceClient
	opts     Options
	endpoint string
	closers  []io.Closer

	// name is what the runtime calls itself, nil until it was asked.
	name atomic.Pointer[string]
	// readOnlyDeep has the runtime handlers that can mount read-only recursively, nil
	// until the runtime was asked.
	readOnlyDeep atomic.Pointer[map[string]bool]
	// unstreamed says that the runtime has been asked for the streaming list calls and
	// has none.
	unstreamed atomic.Bool
	// node is what is found out about the machine, once.
	node   func() *translate.Node
	pulls  *puller
	starts *gate
	pods   memory
	// stops of sandboxes and removals under way, by the ID of what is stopped or removed.
	stops, removals shares
}

var (
	_ runtime.Runtime     = (*Runtime)(nil)
	_ runtime.EventSource = (*Runtime)(nil)
)

// New returns a Runtime over the given clients, which stay the caller's to
// close. It makes no call.
func New(rs criv1.RuntimeServiceClient, is criv1.ImageServiceClient, opts Options) *Runtime {
	opts.setDefaults()
	r := &Runtime{rs: rs, is: is, opts: opts, endpoint: "the given client"}
	r.pulls = newPuller(&r.opts)
	r.starts = newGate(opts.MaxParallelStarts)
	r.pods.idle = 2 * max(r.opts.PullBackoffMax, r.opts.Backoff.Max, 10*time.Minute)
	r.node = sync.OnceValue(func() *translate.Node { return findNode(&opts) })
	return r
}

// Close closes the connections that [Dial] has made. Calls under way fail.
func (r *Runtime) Close() error {
	var errs []error
	for _, c := range r.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// typeName returns what the runtime calls itself, which is the type of all
// container IDs. It costs one call in the life of a Runtime.
func (r *Runtime) typeName(ctx context.Context) (string, error) {
	if name := r.name.Load(); name != nil {
		return *name, nil
	}
	resp, err := call(ctx, r, "Version", "", 0, r.rs.Version, &criv1.VersionRequest{})
	if err != nil {
		return "", err
	}
	name := resp.GetRuntimeName()
	if name == "" {
		return "", errors.New("the runtime does not say its name in its answer to Version")
	}
	r.name.Store(&name)
	return name, nil
}
