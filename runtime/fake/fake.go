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

// Options are the settings of a [Runtime]. The zero value is valid.
type Options struct {
	// Name is the name that the runtime reports, which is the type of its container IDs.
	// Default: "fake".
	Name string
	// Behavior returns the behavior of an instance that no script applies to. Default: the
	// zero [Behavior], which runs until it is stopped.
	Behavior func(c Container) Behavior
	// Images that the runtime holds from the start, by name; a name without tag or digest
	// gets the tag "latest". All other images can be pulled, unless a [Fault] prevents it.
	Images []string
	// ImageFsBytes is the size of the file system of images, see [Runtime.ImageFsInfo].
	// Default: 1 TiB.
	ImageFsBytes int64
	// IDPrefix is the prefix of the IDs of sandboxes and containers. Give each of several
	// runtimes in one agent its own. Default: none.
	IDPrefix string
	// Without are the names of CRI calls that the runtime does not implement, such as
	// "GetContainerEvents". They answer Unimplemented, as older runtimes do.
	// [ListStreams] returns the calls that are new in CRI v0.37. Default: none.
	Without []string
	// PodIPs returns the addresses of a pod's sandbox, the primary one first, when it is
	// created. It is not called for pods with the network of the host. Default: one
	// address of 10.0.0.0/8 for each sandbox.
	PodIPs func(pod runtime.PodRef) []string
	// PortForward is the pods' end of forwarded ports, see [Runtime.ForwardPort]. ctx
	// ends when the sandbox is not ready any more. nil: nothing listens on any port.
	PortForward func(ctx context.Context, pod runtime.PodRef, port int32, stream io.ReadWriteCloser) error
	// Events is the quality of the event stream.
	Events EventStream
	// Calls is the number of calls that are kept for [Runtime.Calls], the newest ones.
	// Default: 100 000. Negative: none.
	Calls int
	// Event receives the events of [Runtime.Sync].
	Event runtime.EventFunc
	// CRI are the settings of the client, runtime/cri, in front of the fake, such as
	// back-offs and timeouts.
	CRI cri.Options
	// Dir is the directory for logs and for the pods of [Runtime.Sync], for example from
	// testing.T.TempDir. [Runtime.Sync] requires it.
	Dir string
}

// Runtime is a container runtime in memory. It implements [runtime.Runtime],
// [runtime.EventSource] and [runtime.ImageService] with the client of package runtime/cri, and is also the server
// behind that client. It is safe for concurrent use.
type Runtime struct {
	*cri.Runtime
	s    *service
	conn *conn
	dir  string
	// event receives the events of Sync.
	event runtime.EventFunc
}

var (
	_ runtime.Runtime      = (*Runtime)(nil)
	_ runtime.EventSource  = (*Runtime)(nil)
	_ runtime.ImageService = (*Runtime)(nil)
)

// New returns an empty runtime.
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

// Clients returns CRI clients of the fake that need no socket, for calls that
// [runtime.Runtime] does not offer, and for calls in an order that agents would not
// use. Messages are copied as on a wire.
func (r *Runtime) Clients() (criv1.RuntimeServiceClient, criv1.ImageServiceClient) {
	return criv1.NewRuntimeServiceClient(r.conn), criv1.NewImageServiceClient(r.conn)
}

// Register registers the runtime's CRI services with a gRPC server. Package criserver
// has a server that needs no more than a listener.
func (r *Runtime) Register(server grpc.ServiceRegistrar) {
	for _, desc := range serviceDescs() {
		impl := r.conn.serverOf(desc.ServiceName)
		intercepted := *desc
		intercepted.Methods = slices.Clone(desc.Methods)
		for i, m := range desc.Methods {
			intercepted.Methods[i].Handler = func(srv any, ctx context.Context, dec func(any) error,
				_ grpc.UnaryServerInterceptor) (any, error) {
				return m.Handler(srv, ctx, dec, r.s.intercept)
			}
		}
		server.RegisterService(&intercepted, impl)
	}
}

// Close stops all timers: no container exits by itself any more. Calls still work.
func (r *Runtime) Close() error {
	r.s.close()
	return r.Runtime.Close()
}

// Host returns a host for the pods of this runtime, with a directory for their logs if
// [Options].Dir is set.
func (r *Runtime) Host() *runtime.Host {
	host := &runtime.Host{NodeName: "node", Hostname: "host", IPs: []string{"192.0.2.1"}}
	if r.dir != "" {
		host.PodLogsDir = filepath.Join(r.dir, "logs")
	}
	return host
}

// Sync reads the status of the pod and calls SyncPod once. For a pod without init
// containers one call starts all containers. It is for tests that need a running pod
// but no agent. [Options].Dir must be set.
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
