package fake

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// Options are the settings of a [Runtime]; the zero value is good.
type Options struct {
	// Name is what the runtime calls itself, the type of its container IDs.
	// Default: "fake".
	Name string
	// Behavior says what a container does that no script is about. Default: it runs
	// until it is stopped, and ends at once when told to.
	Behavior func(c Container) Behavior
	// Images that are there from the start, by the names under which they are asked
	// for; a name without tag or digest is taken with ":latest". All others can be
	// pulled, unless a [Fault] says otherwise.
	Images []string
	// IDPrefix stands before the IDs of sandboxes and containers, to tell several
	// runtimes in one test apart. Default: none.
	IDPrefix string
	// Without are names of CRI calls that the runtime does not have, as in
	// "GetContainerEvents": they answer Unimplemented, as a runtime does that is too old
	// for them. [ListStreams] has those that are new in CRI v0.37. Default: none.
	Without []string
	// PodIPs returns the addresses of a pod's sandbox, the primary one first, when it is
	// created. It is not called for pods with the network of the host. Default: one
	// address of 10.0.0.0/8 for each sandbox.
	PodIPs func(pod runtime.PodRef) []string
	// PortForward is the pods' end of forwarded ports, see [Runtime.ForwardPort]. ctx
	// ends when the sandbox is not ready any more. nil: nothing listens on any port.
	PortForward func(ctx context.Context, pod runtime.PodRef, port int32, stream io.ReadWriteCloser) error
	// Events says how the stream of events treats those who listen.
	Events EventStream
	// Calls is how many calls are kept for [Runtime.Calls], the newest. Default:
	// 100 000. Negative: none.
	Calls int
	// Event receives the events of [Runtime.Sync].
	Event runtime.EventFunc
	// CRI are the settings of the client, runtime/cri, that the fake is used through:
	// its back-offs and its timeouts.
	CRI cri.Options
	// Dir is where [Runtime.Sync] has logs and pods' directories, as of
	// testing.T.TempDir. It is not needed otherwise.
	Dir string
}

// Runtime is a container runtime in memory. It fulfils [runtime.Runtime] and
// [runtime.EventSource] through the client of package runtime/cri, and is at the same
// time the server behind it. It is safe for concurrent use.
type Runtime struct {
	*cri.Runtime
	s    *service
	conn *conn
	dir  string
	// event receives the events of Sync.
	event runtime.EventFunc
}

var (
	_ runtime.Runtime     = (*Runtime)(nil)
	_ runtime.EventSource = (*Runtime)(nil)
)

// New returns a runtime that holds nothing.
func New(opts Options) *Runtime {
	s := newService(opts)
	c := &conn{s: s}
	return &Runtime{
		Runtime: cri.New(criv1.NewRuntimeServiceClient(c), criv1.NewImageServiceClient(c), opts.CRI),
		s:       s,
		conn:    c,
		dir:     opts.Dir,
		event:   opts.Event,
	}
}

// Clients returns CRI clients of the fake that need no socket, for what
// [runtime.Runtime] does not offer: events, images, and calls in an order that no
// agent would choose. Messages are copied as on a wire.
func (r *Runtime) Clients() (criv1.RuntimeServiceClient, criv1.ImageServiceClient) {
	return criv1.NewRuntimeServiceClient(r.conn), criv1.NewImageServiceClient(r.conn)
}

// Register registers the runtime's CRI services with a gRPC server, for users that
// make the server themselves. Package criserver serves them on a listener.
func (r *Runtime) Register(server grpc.ServiceRegistrar) {
	for _, desc := range serviceDescs() {
		impl := r.conn.serverOf(desc.ServiceName)
		intercepted := *desc
		intercepted.Methods = slices.Clone(desc.Methods)
		for i, m := range desc.Methods {
			intercepted.Methods[i].Handler = func(srv any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				return m.Handler(srv, ctx, dec, r.s.intercept)
			}
		}
		server.RegisterService(&intercepted, impl)
	}
}

// Close ends what containers would still do by themselves. The runtime goes on
// answering.
func (r *Runtime) Close() error {
	r.s.close()
	return r.Runtime.Close()
}

// Host returns what pods of this runtime may know of their machine, with the
// directory for their logs if there is [Options].Dir.
func (r *Runtime) Host() *runtime.Host {
	host := &runtime.Host{NodeName: "node", Hostname: "host", IPs: []string{"192.0.2.1"}}
	if r.dir != "" {
		host.PodLogsDir = filepath.Join(r.dir, "logs")
	}
	return host
}

// Sync brings the pod forward by one step: it reads its status and calls SyncPod.
// For a pod without init containers the first step starts all. It is for tests
// that want a pod to be there without an agent; [Options].Dir must be set.
func (r *Runtime) Sync(ctx context.Context, pod *v1.Pod) (runtime.SyncResult, error) {
	if r.dir == "" {
		return runtime.SyncResult{}, errors.New("fake runtime: Sync needs Options.Dir")
	}
	status, err := r.InspectPod(ctx, runtime.RefOf(pod))
	if err != nil {
		return runtime.SyncResult{}, err
	}
	return r.SyncPod(ctx, runtime.PodSync{
		Pod: pod, Status: status, Host: r.Host(), Dir: filepath.Join(r.dir, "pods", string(pod.UID)),
		Event: r.event,
	})
}
