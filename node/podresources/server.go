package podresources

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	apiv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	apiv1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/internal/localgrpc"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Kubelet's limits of requests.
const (
	DefaultQPS   = localgrpc.DefaultQPS
	DefaultBurst = localgrpc.DefaultBurst
)

// Source reports the resources of one part of the agent. Its functions are called concurrently, for each request, and
// must not block. A nil function reports nothing.
type Source struct {
	// Of returns what a container holds.
	Of func(pod *v1.Pod, container *v1.Container) Resources
	// OfPod returns the CPUs and the memory that a pod with resources as a whole holds; nothing for another pod.
	OfPod func(pod *v1.Pod) Resources
	// Allocatable returns what the node has for containers, whether they hold it or not.
	Allocatable func() Resources
}

// Options are the settings of a [Server].
type Options struct {
	// QPS is the number of requests in a second, and Burst at once. Defaults: [DefaultQPS], [DefaultBurst].
	QPS, Burst int
	// Request is called after each request that was not refused, with the version of the API, the method, and its
	// error. It must not block. It is no measurement, since package prommetrics does not link gRPC. Default: nothing.
	Request func(version, method string, err error)
}

// Server serves the API. It is a component of an agent. Make one with [New].
type Server struct {
	socket  *localgrpc.Server
	sources []Source
	node    lifecycle.Node
	running atomic.Bool
}

var (
	_ lifecycle.Joiner = (*Server)(nil)
	_ lifecycle.Runner = (*Server)(nil)
)

// New returns a server on the socket with the path, that of kubelet is pod-resources/kubelet.sock in its root
// directory.
func New(path string, sources []Source, opts Options) (*Server, error) {
	socket, err := localgrpc.New(path, opts.QPS, opts.Burst)
	if err != nil {
		return nil, fmt.Errorf("podresources: %w", err)
	}
	s := &Server{socket: socket, sources: sources, node: lifecycle.NopNode{}}
	socket.Done = opts.Request
	socket.Register = func(r grpc.ServiceRegistrar) {
		apiv1.RegisterPodResourcesListerServer(r, listerV1{Server: s})
		apiv1alpha1.RegisterPodResourcesListerServer(r, listerV1alpha1{Server: s})
	}
	return s, nil
}

// Name implements [lifecycle.Component].
func (s *Server) Name() string { return "pod resources" }

// Join implements [lifecycle.Joiner]. The pods of the node hold resources until nothing of them runs.
func (s *Server) Join(node lifecycle.Node) error {
	s.node = node
	return nil
}

// pods returns the pods that hold resources.
func (s *Server) pods() []*v1.Pod {
	return slices.DeleteFunc(s.node.Pods(), func(pod *v1.Pod) bool { return s.node.State(pod.UID).Stopped })
}

// Run serves until ctx ends. A socket that cannot be served is logged: the agent does without. It returns an error that
// wraps [runtime.ErrAlreadyRunning] while another call runs.
func (s *Server) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return fmt.Errorf("podresources: %w", runtime.ErrAlreadyRunning)
	}
	defer s.running.Store(false)
	if err := s.socket.Run(ctx); err != nil {
		s.node.Logger().Error(err, "The API of pod resources is not served", "socket", s.socket.Path)
	}
	return nil
}

// of returns what the container holds, of all sources.
func (s *Server) of(pod *v1.Pod, container *v1.Container) (all Resources) {
	for _, source := range s.sources {
		if source.Of != nil {
			all.add(source.Of(pod, container))
		}
	}
	return all
}

// ofPod returns what the pod holds as a whole, of all sources.
func (s *Server) ofPod(pod *v1.Pod) (all Resources) {
	for _, source := range s.sources {
		if source.OfPod != nil {
			all.add(source.OfPod(pod))
		}
	}
	return all
}

func (s *Server) allocatable() (all Resources) {
	for _, source := range s.sources {
		if source.Allocatable != nil {
			all.add(source.Allocatable())
		}
	}
	return all
}
