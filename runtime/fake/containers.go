package fake

import (
	"context"
	"path"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// CreateContainer creates an instance in a ready sandbox from an image that the runtime
// holds. Its full name, made of its name, the sandbox's and its attempt, must be free.
func (s *runtimeServer) CreateContainer(_ context.Context,
	req *criv1.CreateContainerRequest) (*criv1.CreateContainerResponse, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	sb := s.s.sandboxes.byID[req.GetPodSandboxId()]
	config := req.GetConfig()
	img := s.s.findImage(config.GetImage().GetImage())
	switch {
	case sb == nil:
		return nil, notFound("sandbox", req.GetPodSandboxId())
	case !sb.ready:
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %q is not running", sb.id)
	case config.GetMetadata() == nil:
		return nil, status.Error(codes.InvalidArgument, "the container has no metadata")
	case img == nil:
		return nil, notFound("image", config.GetImage().GetImage())
	}
	c := newContainer(sb, config, img.GetId())
	if s.s.names[c.fullName()] {
		return nil, status.Errorf(codes.AlreadyExists, "container name %q is taken", c.fullName())
	}
	s.s.addContainer(c)
	return &criv1.CreateContainerResponse{ContainerId: c.id}, nil
}

// newContainer returns an instance without adding it to the runtime.
func newContainer(sb *sandbox, config *criv1.ContainerConfig, imageID string) *container {
	return &container{
		sandbox: sb, config: config, imageID: imageID, resources: config.GetLinux().GetResources(),
		state: criv1.ContainerState_CONTAINER_CREATED, created: time.Now().UnixNano(), done: make(chan struct{}),
	}
}

// addContainer adds an instance, whose name is free. mu is held.
func (s *service) addContainer(c *container) {
	c.seq, c.id = s.newID("c")
	s.names[c.fullName()] = true
	s.containers.add(c)
	c.sandbox.containers = append(c.sandbox.containers, c)
	s.emit(c.sandbox, c, criv1.ContainerEventType_CONTAINER_CREATED_EVENT)
}

// StartContainer starts an instance once.
func (s *runtimeServer) StartContainer(ctx context.Context,
	req *criv1.StartContainerRequest) (*criv1.StartContainerResponse, error) {
	c, err := s.s.beginStart(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	b := s.s.behaviorOf(c)
	err = nil
	if b.StartDelay > 0 {
		err = pause(ctx, b.StartDelay)
	}
	failed := err == nil && b.StartErr != nil
	if failed {
		err = b.StartErr
	}
	if err == nil {
		err = c.write(b.Output)
	}

	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	c.starting = false
	switch {
	case s.s.containers.byID[c.id] != c:
		return nil, notFound("container", c.id)
	case failed:
		c.setState(criv1.ContainerState_CONTAINER_EXITED)
		c.finished, c.exitCode = time.Now().UnixNano(), 128
		c.reason, c.message = "StartError", err.Error()
		close(c.done)
		s.s.emit(c.sandbox, c, criv1.ContainerEventType_CONTAINER_STOPPED_EVENT)
		return nil, err
	case err != nil:
		return nil, err
	case !c.sandbox.ready:
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %q is not running", c.sandbox.id)
	}
	s.s.run(c, b)
	return &criv1.StartContainerResponse{}, nil
}

// beginStart returns a container that may be started, and marks it as being started.
func (s *service) beginStart(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers.byID[id]
	switch {
	case c == nil:
		return nil, notFound("container", id)
	case c.starting:
		return nil, status.Errorf(codes.FailedPrecondition, "container %q is being started", id)
	case c.state != criv1.ContainerState_CONTAINER_CREATED:
		return nil, status.Errorf(codes.FailedPrecondition, "container %q is in state %s", id, c.state)
	case !c.sandbox.ready:
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %q is not running", c.sandbox.id)
	}
	c.starting = true
	return c, nil
}

// StopContainer sends the stop signal, unless that was done before, and kills the
// container at the end of the grace period, or at once if that is 0. It succeeds for
// containers that do not run or do not exist.
func (s *runtimeServer) StopContainer(ctx context.Context,
	req *criv1.StopContainerRequest) (*criv1.StopContainerResponse, error) {
	grace := podspec.Seconds(req.GetTimeout())
	s.s.mu.Lock()
	c := s.s.containers.byID[req.GetContainerId()]
	running := c != nil && c.state == criv1.ContainerState_CONTAINER_RUNNING
	if running && grace > 0 {
		s.s.signal(c)
	}
	s.s.mu.Unlock()
	if !running {
		return &criv1.StopContainerResponse{}, nil
	}
	if grace > 0 {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-c.done:
			return &criv1.StopContainerResponse{}, nil
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-t.C:
		}
	}
	if err := s.s.kill(ctx, c); err != nil {
		return nil, err
	}
	return &criv1.StopContainerResponse{}, nil
}

// RemoveContainer removes an instance, and kills it before if it runs. It succeeds if
// there is no such instance.
func (s *runtimeServer) RemoveContainer(ctx context.Context,
	req *criv1.RemoveContainerRequest) (*criv1.RemoveContainerResponse, error) {
	s.s.mu.Lock()
	c := s.s.containers.byID[req.GetContainerId()]
	s.s.mu.Unlock()
	if c == nil {
		return &criv1.RemoveContainerResponse{}, nil
	}
	if err := s.s.kill(ctx, c); err != nil {
		return nil, err
	}
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	s.s.drop(c)
	return &criv1.RemoveContainerResponse{}, nil
}

// ContainerStatus describes an instance.
func (s *runtimeServer) ContainerStatus(_ context.Context,
	req *criv1.ContainerStatusRequest) (*criv1.ContainerStatusResponse, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	c := s.s.containers.byID[req.GetContainerId()]
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	return &criv1.ContainerStatusResponse{Status: c.status(s.s)}, nil
}

func (c *container) status(s *service) *criv1.ContainerStatus {
	st := &criv1.ContainerStatus{
		Id: c.id, Metadata: c.config.GetMetadata(), State: c.state, CreatedAt: c.created, StartedAt: c.started,
		FinishedAt: c.finished, ExitCode: c.exitCode, Reason: c.reason, Message: c.message,
		Image: c.config.GetImage(), ImageRef: c.imageID, ImageId: c.imageID, LogPath: c.logPath(),
		Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(), Mounts: c.config.GetMounts(),
	}
	if img := s.images[c.imageID]; img != nil && len(img.GetRepoDigests()) > 0 {
		st.ImageRef = img.GetRepoDigests()[0]
	}
	if c.resources != nil {
		st.Resources = &criv1.ContainerResources{Linux: c.resources}
	}
	return st
}

func (c *container) logPath() string {
	dir, file := c.sandbox.config.GetLogDirectory(), c.config.GetLogPath()
	if dir == "" || file == "" {
		return ""
	}
	return path.Join(dir, file)
}

// ListContainers lists instances in the order of their creation.
func (s *runtimeServer) ListContainers(_ context.Context,
	req *criv1.ListContainersRequest) (*criv1.ListContainersResponse, error) {
	resp := &criv1.ListContainersResponse{}
	resp.ProtoReflect().SetUnknown(join(s.s.listContainers(req.GetFilter())))
	return resp, nil
}

func (s *service) listContainers(f *criv1.ContainerFilter) []item {
	s.mu.Lock()
	defer s.mu.Unlock()
	var items []item
	for _, c := range s.selectContainers(f.GetId(), f.GetPodSandboxId(), f.GetLabelSelector()) {
		if f.GetState() == nil || f.GetState().GetState() == c.state {
			items = append(items, c.listed())
		}
	}
	return items
}

// UpdateContainerResources stores the resources that are not 0; the status reports them.
func (s *runtimeServer) UpdateContainerResources(_ context.Context,
	req *criv1.UpdateContainerResourcesRequest) (*criv1.UpdateContainerResourcesResponse, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	c := s.s.containers.byID[req.GetContainerId()]
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	updated := &criv1.LinuxContainerResources{}
	proto.Merge(updated, c.resources)
	if len(req.GetLinux().GetHugepageLimits()) > 0 {
		updated.HugepageLimits = nil
	}
	proto.Merge(updated, req.GetLinux())
	c.resources = updated
	s.s.cond.Changed()
	return &criv1.UpdateContainerResourcesResponse{}, nil
}

// ReopenContainerLog creates the log of a running container if it does not exist.
func (s *runtimeServer) ReopenContainerLog(_ context.Context,
	req *criv1.ReopenContainerLogRequest) (*criv1.ReopenContainerLogResponse, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	c := s.s.containers.byID[req.GetContainerId()]
	switch {
	case c == nil:
		return nil, notFound("container", req.GetContainerId())
	case c.state != criv1.ContainerState_CONTAINER_RUNNING:
		return nil, status.Errorf(codes.FailedPrecondition, "container %q is not running", c.id)
	}
	if err := appendTo(c.logPath(), nil); err != nil {
		return nil, err
	}
	return &criv1.ReopenContainerLogResponse{}, nil
}
