package fake

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
)

// service is the state of the runtime. mu guards all of it except what newService sets.
// Values that calls return are never changed afterwards.
type service struct {
	opts Options
	rs   *runtimeServer
	is   *imageServer

	mu sync.Mutex
	// seq is the number of the newest sandbox or container.
	seq        int
	sandboxes  index[*sandbox]
	containers index[*container]
	// names has the reserved names of sandboxes and containers.
	names  map[string]bool
	images map[string]*criv1.Image // by name and by ID

	scripts    []*script
	faults     []*fault
	evFaults   []*eventFault
	overtaken  []*overtaken
	subs       map[*subscription]struct{}
	unheard    []kept // while there is no subscription
	conditions []*criv1.RuntimeCondition

	// calls has the newest calls. Once it is full it is a ring, and next is the index of
	// the oldest.
	calls    []*Call
	next     int
	lastCall int
	// underWay cancels the calls in progress.
	underWay map[int]context.CancelCauseFunc
	down     bool
	closed   bool
	// streams hands out the addresses of exec, attach and port-forward; it may be nil.
	streams streamServer

	// touched is the number of the last sandbox of the previous [Runtime.ExitNext] or
	// [Runtime.RestartNext].
	touched int

	// cond wakes waiters after each change and each call.
	cond cond.Cond
}

type runtimeServer struct {
	criv1.UnimplementedRuntimeServiceServer
	*state
}

type imageServer struct {
	criv1.UnimplementedImageServiceServer
	*state
}

// state is embedded instead of service, whose methods would hide those of the embedded
// unimplemented servers.
type state struct{ s *service }

type sandbox struct {
	seq        int
	id         string
	pod        runtime.PodRef
	config     *criv1.PodSandboxConfig
	handler    string
	ready      bool
	lost       chan struct{} // closed when it is no longer ready
	created    int64
	ips        []string // none with the host's network
	containers []*container
	item       item // see listed
}

// container is one instance.
type container struct {
	seq     int
	id      string
	sandbox *sandbox
	config  *criv1.ContainerConfig
	imageID string
	// resources in force; replaced as a whole.
	resources *criv1.LinuxContainerResources

	state                      criv1.ContainerState // set by setState
	item                       item                 // see listed
	created, started, finished int64
	exitCode                   int32
	reason, message            string

	// starting is true during StartContainer.
	starting bool
	behavior Behavior
	// usage is the current usage; usedCPU is the CPU time used until settled.
	usage   Usage
	usedCPU time.Duration
	settled time.Time
	// end makes it exit by itself, term after the stop signal.
	end, term *time.Timer
	signalled bool
	// done is closed when it has exited.
	done chan struct{}
}

func newService(opts Options) *service {
	if opts.Name == "" {
		opts.Name = "fake"
	}
	if opts.Calls == 0 {
		opts.Calls = 100_000
	}
	s := &service{
		opts:       opts,
		sandboxes:  newIndex[*sandbox](),
		containers: newIndex[*container](),
		names:      map[string]bool{},
		images:     map[string]*criv1.Image{},
		subs:       map[*subscription]struct{}{},
		underWay:   map[int]context.CancelCauseFunc{},
		conditions: []*criv1.RuntimeCondition{
			{Type: criv1.RuntimeReady, Status: true}, {Type: criv1.NetworkReady, Status: true},
		},
	}
	s.rs, s.is = &runtimeServer{state: &state{s}}, &imageServer{state: &state{s}}
	for _, name := range opts.Images {
		s.addImage(Image{Name: name})
	}
	return s
}

// newID returns the number and the ID of a new sandbox or container. mu is held.
func (s *service) newID(prefix string) (int, string) {
	s.seq++
	return s.seq, fmt.Sprintf("%s%s%d", s.opts.IDPrefix, prefix, s.seq)
}

func (s *service) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.containers.all {
		c.stopTimers()
	}
}

func (c *container) stopTimers() {
	for _, t := range []*time.Timer{c.end, c.term} {
		if t != nil {
			t.Stop()
		}
	}
}

func (c *container) name() string { return c.config.GetMetadata().GetName() }

func (c *container) image() string {
	return cmp.Or(c.config.GetImage().GetUserSpecifiedImage(), c.config.GetImage().GetImage())
}

func podOf(m *criv1.PodSandboxMetadata) runtime.PodRef {
	return runtime.PodRef{UID: types.UID(m.GetUid()), Namespace: m.GetNamespace(), Name: m.GetName()}
}

func sandboxName(m *criv1.PodSandboxMetadata) string {
	return fmt.Sprintf("%s_%s_%s_%d", m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt())
}

// fullName returns the name that is unique among all containers.
func (c *container) fullName() string {
	return fmt.Sprintf("%s_%s_%d", c.name(), sandboxName(c.sandbox.config.GetMetadata()),
		c.config.GetMetadata().GetAttempt())
}

func notFound(what, id string) error {
	return status.Errorf(codes.NotFound, "%s %q: not found", what, id)
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func remove[T comparable](list []T, item T) []T {
	if i := slices.Index(list, item); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

func stateWord(st criv1.ContainerState) runtime.ContainerState {
	switch st {
	case criv1.ContainerState_CONTAINER_CREATED:
		return runtime.ContainerCreated
	case criv1.ContainerState_CONTAINER_RUNNING:
		return runtime.ContainerRunning
	case criv1.ContainerState_CONTAINER_EXITED:
		return runtime.ContainerExited
	default:
		return runtime.ContainerUnknown
	}
}

// tagged returns the name with the tag "latest" if it has neither tag nor digest.
func tagged(name string) string {
	if strings.Contains(name[strings.LastIndexByte(name, '/')+1:], ":") || strings.Contains(name, "@") {
		return name
	}
	return name + ":latest"
}
