package cri

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a small CRI service in memory. It follows virtual time, records the
// calls made to it, and fails or delays them as a test says.
type service struct {
	mu         sync.Mutex
	start      time.Time
	transcript []string
	sandboxes  map[string]*fakeSandbox
	containers map[string]*fakeContainer
	images     map[string]*criv1.Image // by what they are asked for
	next       int

	// before is asked at the beginning of each call; an error ends it.
	before func(ctx context.Context, method, about string) error
	// exits is how long containers take to end when told to; by default no time.
	exits map[string]time.Duration
	// exec answers ExecSync.
	exec func(ctx context.Context, req *criv1.ExecSyncRequest) (*criv1.ExecSyncResponse, error)
	// pull answers PullImage.
	pull       func(ctx context.Context, req *criv1.PullImageRequest) error
	conditions []*criv1.RuntimeCondition
	ip         string
}

type fakeSandbox struct {
	id      string
	req     *criv1.RunPodSandboxRequest
	state   criv1.PodSandboxState
	created int64
}

type fakeContainer struct {
	id, sandbox       string
	config            *criv1.ContainerConfig
	logPath           string
	state             criv1.ContainerState
	created, started  int64
	finished          int64
	exitCode          int32
	reason            string
	signalled, killed bool
	done              chan struct{}
}

func newService(images ...string) *service {
	s := &service{
		start:      time.Now(),
		sandboxes:  map[string]*fakeSandbox{},
		containers: map[string]*fakeContainer{},
		images:     map[string]*criv1.Image{},
		exits:      map[string]time.Duration{},
		ip:         "10.0.0.7",
		conditions: []*criv1.RuntimeCondition{
			{Type: criv1.RuntimeReady, Status: true}, {Type: criv1.NetworkReady, Status: true},
		},
	}
	for _, name := range images {
		s.addImage(name)
	}
	return s
}

func (s *service) addImage(name string) {
	img := &criv1.Image{Id: "sha256:" + name, RepoTags: []string{name}, Size: 7}
	s.images[name], s.images[img.Id] = img, img
}

// runtime returns a Runtime over the service.
func (s *service) runtime(opts Options) *Runtime {
	if opts.node == nil {
		opts.node = testNode()
	}
	return New(&runtimeClient{service: s}, &imageClient{service: s}, opts)
}

// enter records a call, with the virtual time since the start if any has passed.
func (s *service) enter(ctx context.Context, method, about string) error {
	s.mu.Lock()
	line := strings.TrimSpace(method + " " + about)
	if d := time.Since(s.start); d >= time.Second {
		line = fmt.Sprintf("%s %s", d.Truncate(time.Millisecond), line)
	}
	s.transcript = append(s.transcript, line)
	before := s.before
	s.mu.Unlock()
	if before != nil {
		if err := before(ctx, method, about); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}

// calls returns and forgets the calls made so far, without those that only read
// unless all is set.
func (s *service) calls(all ...bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.transcript
	s.transcript = nil
	if len(all) > 0 {
		return lines
	}
	return slices.DeleteFunc(lines, func(l string) bool {
		return strings.Contains(l, "Status") || strings.Contains(l, "List") || strings.Contains(l, "Version")
	})
}

func (s *service) id(prefix string) string {
	s.next++
	return fmt.Sprintf("%s%d", prefix, s.next)
}

// byName returns the newest container of the name.
func (s *service) byName(name string) *fakeContainer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *fakeContainer
	for _, c := range s.containers {
		if c.config.Metadata.Name == name && (newest == nil || c.config.Metadata.Attempt > newest.config.Metadata.Attempt) {
			newest = c
		}
	}
	return newest
}

// exit ends the newest container of the name.
func (s *service) exit(name string, code int32) {
	c := s.byName(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(c, code)
}

func (s *service) end(c *fakeContainer, code int32) {
	if c.state != criv1.ContainerState_CONTAINER_RUNNING {
		return
	}
	c.state, c.exitCode, c.finished, c.reason = criv1.ContainerState_CONTAINER_EXITED, code, time.Now().UnixNano(), "Completed"
	if code != 0 {
		c.reason = "Error"
	}
	close(c.done)
}

func notFound(what, id string) error {
	return status.Errorf(codes.NotFound, "%s %q not found", what, id)
}

type runtimeClient struct {
	criv1.RuntimeServiceClient
	*service
}

func (s *runtimeClient) Version(ctx context.Context, _ *criv1.VersionRequest, _ ...grpc.CallOption) (*criv1.VersionResponse, error) {
	return &criv1.VersionResponse{RuntimeName: "fake", RuntimeApiVersion: "v1"}, s.enter(ctx, "Version", "")
}

func (s *runtimeClient) Status(ctx context.Context, _ *criv1.StatusRequest, _ ...grpc.CallOption) (*criv1.StatusResponse, error) {
	return &criv1.StatusResponse{Status: &criv1.RuntimeStatus{Conditions: s.conditions}}, s.enter(ctx, "Status", "")
}

func (s *runtimeClient) RunPodSandbox(ctx context.Context, req *criv1.RunPodSandboxRequest, _ ...grpc.CallOption) (*criv1.RunPodSandboxResponse, error) {
	if err := s.enter(ctx, "RunPodSandbox", fmt.Sprintf("%s/%d", req.Config.Metadata.Name, req.Config.Metadata.Attempt)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sb := &fakeSandbox{id: s.id("s"), req: req, state: criv1.PodSandboxState_SANDBOX_READY, created: time.Now().UnixNano()}
	s.sandboxes[sb.id] = sb
	return &criv1.RunPodSandboxResponse{PodSandboxId: sb.id}, nil
}

func (s *runtimeClient) StopPodSandbox(ctx context.Context, req *criv1.StopPodSandboxRequest, _ ...grpc.CallOption) (*criv1.StopPodSandboxResponse, error) {
	if err := s.enter(ctx, "StopPodSandbox", req.PodSandboxId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sb := s.sandboxes[req.PodSandboxId]; sb != nil {
		sb.state = criv1.PodSandboxState_SANDBOX_NOTREADY
		for _, c := range s.containers {
			if c.sandbox == sb.id {
				s.end(c, 137)
			}
		}
	}
	return &criv1.StopPodSandboxResponse{}, nil
}

func (s *runtimeClient) RemovePodSandbox(ctx context.Context, req *criv1.RemovePodSandboxRequest, _ ...grpc.CallOption) (*criv1.RemovePodSandboxResponse, error) {
	if err := s.enter(ctx, "RemovePodSandbox", req.PodSandboxId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, req.PodSandboxId)
	return &criv1.RemovePodSandboxResponse{}, nil
}

func (s *runtimeClient) PodSandboxStatus(ctx context.Context, req *criv1.PodSandboxStatusRequest, _ ...grpc.CallOption) (*criv1.PodSandboxStatusResponse, error) {
	if err := s.enter(ctx, "PodSandboxStatus", req.PodSandboxId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sb := s.sandboxes[req.PodSandboxId]
	if sb == nil {
		return nil, notFound("sandbox", req.PodSandboxId)
	}
	opts := sb.req.Config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	st := &criv1.PodSandboxStatus{
		Id: sb.id, Metadata: sb.req.Config.Metadata, State: sb.state, CreatedAt: sb.created,
		Linux:  &criv1.LinuxPodSandboxStatus{Namespaces: &criv1.Namespace{Options: opts}},
		Labels: sb.req.Config.Labels, Annotations: sb.req.Config.Annotations, RuntimeHandler: sb.req.RuntimeHandler,
	}
	if opts.GetNetwork() != criv1.NamespaceMode_NODE {
		st.Network = &criv1.PodSandboxNetworkStatus{Ip: s.ip, AdditionalIps: []*criv1.PodIP{{Ip: "fd00::7"}}}
	}
	return &criv1.PodSandboxStatusResponse{Status: st}, nil
}

func (s *runtimeClient) ListPodSandbox(ctx context.Context, req *criv1.ListPodSandboxRequest, _ ...grpc.CallOption) (*criv1.ListPodSandboxResponse, error) {
	if err := s.enter(ctx, "ListPodSandbox", ""); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &criv1.ListPodSandboxResponse{}
	for _, id := range slices.Sorted(maps.Keys(s.sandboxes)) {
		sb := s.sandboxes[id]
		if f := req.GetFilter(); selects(f.GetLabelSelector(), sb.req.Config.Labels) && (f.GetState() == nil || f.GetState().State == sb.state) {
			resp.Items = append(resp.Items, &criv1.PodSandbox{
				Id: sb.id, Metadata: sb.req.Config.Metadata, State: sb.state, CreatedAt: sb.created,
				Labels: sb.req.Config.Labels, Annotations: sb.req.Config.Annotations, RuntimeHandler: sb.req.RuntimeHandler,
			})
		}
	}
	return resp, nil
}

// There are no streaming list calls, as in runtimes made before KEP-5825.

func (s *runtimeClient) StreamPodSandboxes(context.Context, *criv1.StreamPodSandboxesRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[criv1.StreamPodSandboxesResponse], error) {
	return nil, status.Error(codes.Unimplemented, "unknown method StreamPodSandboxes")
}

func (s *runtimeClient) StreamContainers(context.Context, *criv1.StreamContainersRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[criv1.StreamContainersResponse], error) {
	return nil, status.Error(codes.Unimplemented, "unknown method StreamContainers")
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (s *runtimeClient) ListContainers(ctx context.Context, req *criv1.ListContainersRequest, _ ...grpc.CallOption) (*criv1.ListContainersResponse, error) {
	if err := s.enter(ctx, "ListContainers", ""); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &criv1.ListContainersResponse{}
	for _, id := range slices.Sorted(maps.Keys(s.containers)) {
		c := s.containers[id]
		if f := req.GetFilter(); selects(f.GetLabelSelector(), c.config.Labels) && (f.GetState() == nil || f.GetState().State == c.state) {
			resp.Containers = append(resp.Containers, &criv1.Container{
				Id: c.id, PodSandboxId: c.sandbox, Metadata: c.config.Metadata, Image: c.config.Image, State: c.state,
				CreatedAt: c.created, Labels: c.config.Labels, Annotations: c.config.Annotations,
			})
		}
	}
	return resp, nil
}

func (s *runtimeClient) CreateContainer(ctx context.Context, req *criv1.CreateContainerRequest, _ ...grpc.CallOption) (*criv1.CreateContainerResponse, error) {
	if err := s.enter(ctx, "CreateContainer", fmt.Sprintf("%s/%d", req.Config.Metadata.Name, req.Config.Metadata.Attempt)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sb := s.sandboxes[req.PodSandboxId]
	if sb == nil {
		return nil, notFound("sandbox", req.PodSandboxId)
	}
	c := &fakeContainer{
		id: s.id("c"), sandbox: sb.id, config: req.Config, created: time.Now().UnixNano(),
		logPath: filepath.Join(req.SandboxConfig.LogDirectory, req.Config.LogPath), done: make(chan struct{}),
	}
	s.containers[c.id] = c
	return &criv1.CreateContainerResponse{ContainerId: c.id}, nil
}

func (s *runtimeClient) StartContainer(ctx context.Context, req *criv1.StartContainerRequest, _ ...grpc.CallOption) (*criv1.StartContainerResponse, error) {
	s.mu.Lock()
	c := s.containers[req.ContainerId]
	s.mu.Unlock()
	if c == nil {
		return nil, notFound("container", req.ContainerId)
	}
	if err := s.enter(ctx, "StartContainer", c.config.Metadata.Name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.state, c.started = criv1.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	return &criv1.StartContainerResponse{}, nil
}

// StopContainer behaves as containerd's: calls may overlap, and the stop signal is
// sent once.
func (s *runtimeClient) StopContainer(ctx context.Context, req *criv1.StopContainerRequest, _ ...grpc.CallOption) (*criv1.StopContainerResponse, error) {
	s.mu.Lock()
	c := s.containers[req.ContainerId]
	s.mu.Unlock()
	if c == nil {
		return &criv1.StopContainerResponse{}, nil
	}
	if err := s.enter(ctx, "StopContainer", fmt.Sprintf("%s %d", c.config.Metadata.Name, req.Timeout)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if c.state != criv1.ContainerState_CONTAINER_RUNNING {
		s.mu.Unlock()
		return &criv1.StopContainerResponse{}, nil
	}
	takes := s.exits[c.config.Metadata.Name]
	if req.Timeout > 0 && !c.signalled {
		c.signalled = true
		time.AfterFunc(takes, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.end(c, 143)
		})
	}
	s.mu.Unlock()
	t := time.NewTimer(time.Duration(req.Timeout) * time.Second)
	defer t.Stop()
	select {
	case <-c.done:
		return &criv1.StopContainerResponse{}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-t.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.killed = true
	s.end(c, 137)
	return &criv1.StopContainerResponse{}, nil
}

func (s *runtimeClient) RemoveContainer(ctx context.Context, req *criv1.RemoveContainerRequest, _ ...grpc.CallOption) (*criv1.RemoveContainerResponse, error) {
	if err := s.enter(ctx, "RemoveContainer", req.ContainerId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, req.ContainerId)
	return &criv1.RemoveContainerResponse{}, nil
}

func (s *runtimeClient) ContainerStatus(ctx context.Context, req *criv1.ContainerStatusRequest, _ ...grpc.CallOption) (*criv1.ContainerStatusResponse, error) {
	if err := s.enter(ctx, "ContainerStatus", req.ContainerId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[req.ContainerId]
	if c == nil {
		return nil, notFound("container", req.ContainerId)
	}
	return &criv1.ContainerStatusResponse{Status: &criv1.ContainerStatus{
		Id: c.id, Metadata: c.config.Metadata, State: c.state, CreatedAt: c.created, StartedAt: c.started,
		FinishedAt: c.finished, ExitCode: c.exitCode, Reason: c.reason, Image: c.config.Image, ImageRef: "ref@sha256:1",
		Labels: c.config.Labels, Annotations: c.config.Annotations, Mounts: c.config.Mounts, LogPath: c.logPath,
	}}, nil
}

func (s *runtimeClient) ExecSync(ctx context.Context, req *criv1.ExecSyncRequest, _ ...grpc.CallOption) (*criv1.ExecSyncResponse, error) {
	if err := s.enter(ctx, "ExecSync", strings.Join(req.Cmd, " ")); err != nil {
		return nil, err
	}
	if s.exec == nil {
		return &criv1.ExecSyncResponse{}, nil
	}
	return s.exec(ctx, req)
}

type imageClient struct {
	criv1.ImageServiceClient
	*service
}

func (s *imageClient) ImageStatus(ctx context.Context, req *criv1.ImageStatusRequest, _ ...grpc.CallOption) (*criv1.ImageStatusResponse, error) {
	if err := s.enter(ctx, "ImageStatus", req.Image.Image); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &criv1.ImageStatusResponse{Image: s.images[req.Image.Image]}, nil
}

func (s *imageClient) PullImage(ctx context.Context, req *criv1.PullImageRequest, _ ...grpc.CallOption) (*criv1.PullImageResponse, error) {
	who := req.Auth.GetUsername()
	if err := s.enter(ctx, "PullImage", strings.TrimSpace(req.Image.Image+" "+who)); err != nil {
		return nil, err
	}
	if s.pull != nil {
		if err := s.pull(ctx, req); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addImage(req.Image.Image)
	return &criv1.PullImageResponse{ImageRef: s.images[req.Image.Image].Id}, nil
}

// events records events.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) event(ev runtime.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, strings.TrimSpace(ev.FieldPath+" "+ev.Reason+": "+ev.Message))
}

func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.list
	e.list = nil
	return list
}
