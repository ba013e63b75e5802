package podsapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/internal/localgrpc"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Kubelet's limits of requests.
const (
	DefaultQPS   = localgrpc.DefaultQPS
	DefaultBurst = localgrpc.DefaultBurst
)

// Options are the settings of a [Server].
type Options struct {
	// QPS is the number of requests in a second, and Burst at once, without those of WatchPods. Defaults: [DefaultQPS],
	// [DefaultBurst].
	QPS, Burst int
	// Request is called after each request that was not refused, when a watch ends for WatchPods, with the version of
	// the API, the method, and the name of the gRPC code of its answer. It must not block. Default: nothing.
	Request func(version, method, code string)
}

// Server serves the API. It is a component of an agent. Make one with [New].
type Server struct {
	podsv1alpha1.UnimplementedPodsServer
	socket  *localgrpc.Server
	node    lifecycle.Node
	running atomic.Bool

	mu       sync.Mutex
	watchers map[*watcher]struct{}
}

var (
	_ lifecycle.Joiner        = (*Server)(nil)
	_ lifecycle.Runner        = (*Server)(nil)
	_ lifecycle.StatusHandler = (*Server)(nil)
	_ podsv1alpha1.PodsServer = (*Server)(nil)
)

// New returns a server on the socket with the path, that of kubelet is pods-api/pods-api.sock in its root directory.
func New(path string, opts Options) (*Server, error) {
	socket, err := localgrpc.New(path, opts.QPS, opts.Burst)
	if err != nil {
		return nil, fmt.Errorf("podsapi: %w", err)
	}
	s := &Server{socket: socket, node: lifecycle.NopNode{}, watchers: map[*watcher]struct{}{}}
	socket.Register = func(r grpc.ServiceRegistrar) { podsv1alpha1.RegisterPodsServer(r, s) }
	if opts.Request != nil {
		socket.Done = func(version, method string, err error) { opts.Request(version, method, codeOf(err).String()) }
	}
	return s, nil
}

// Name implements [lifecycle.Component].
func (s *Server) Name() string { return "pods API" }

// Join implements [lifecycle.Joiner].
func (s *Server) Join(node lifecycle.Node) error {
	s.node = node
	return nil
}

// Run serves until ctx ends. A socket that cannot be served is logged: the agent does without. It returns an error that
// wraps [runtime.ErrAlreadyRunning] while another call runs.
func (s *Server) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return fmt.Errorf("podsapi: %w", runtime.ErrAlreadyRunning)
	}
	defer s.running.Store(false)
	if err := s.socket.Run(ctx); err != nil {
		s.node.Logger().Error(err, "The pods API is not served", "socket", s.socket.Path)
	}
	return nil
}

func codeOf(err error) codes.Code {
	if errors.Is(err, context.Canceled) {
		return codes.Canceled
	}
	return status.Code(err)
}

// errStarting is the answer before the pods of the node are known.
var errStarting = status.Error(codes.FailedPrecondition, "not all sources have delivered their pods yet")

// desired returns the pods in the order of their UIDs. Their statuses are those of the source.
func (s *Server) desired() ([]*v1.Pod, error) {
	pods, complete := s.node.DesiredPods()
	if !complete {
		return nil, errStarting
	}
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return pods, nil
}

// encode returns the pod with its current status.
func (s *Server) encode(pod *v1.Pod) ([]byte, error) {
	withStatus := *pod
	current, ok := s.node.PodStatus(pod.UID)
	if !ok {
		current = unverified(pod)
	}
	withStatus.Status = current
	data, err := withStatus.Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encoding pod %s: %v", runtime.RefOf(pod), err)
	}
	return data, nil
}

// unverified returns the status that the source has of the pod: as in kubelet, it is not ready before the agent has
// seen it so.
func unverified(pod *v1.Pod) v1.PodStatus {
	last := *pod.Status.DeepCopy()
	if last.Phase == "" {
		last.Phase = v1.PodPending
	}
	for i := range last.Conditions {
		if c := &last.Conditions[i]; c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			c.Status, c.Reason = v1.ConditionFalse, "ContainersNotReady"
			c.Message = "the agent has not seen the containers of the pod yet"
		}
	}
	return last
}

// ListPods implements [podsv1alpha1.PodsServer].
func (s *Server) ListPods(context.Context, *podsv1alpha1.ListPodsRequest) (*podsv1alpha1.ListPodsResponse, error) {
	pods, err := s.desired()
	if err != nil {
		return nil, err
	}
	answer := &podsv1alpha1.ListPodsResponse{Pods: make([][]byte, len(pods))}
	for i, pod := range pods {
		if answer.Pods[i], err = s.encode(pod); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// GetPod implements [podsv1alpha1.PodsServer].
func (s *Server) GetPod(_ context.Context, req *podsv1alpha1.GetPodRequest) (*podsv1alpha1.GetPodResponse, error) {
	if _, complete := s.node.DesiredPods(); !complete {
		return nil, errStarting
	}
	pod, ok := s.node.DesiredPod(types.UID(req.GetPodUID()))
	if !ok {
		return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", req.GetPodUID())
	}
	data, err := s.encode(pod)
	return &podsv1alpha1.GetPodResponse{Pod: data}, err
}
