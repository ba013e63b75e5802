package fake

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version returns the name of the runtime.
func (s *runtimeServer) Version(context.Context, *criv1.VersionRequest) (*criv1.VersionResponse, error) {
	return &criv1.VersionResponse{Version: "0.1.0", RuntimeName: s.s.opts.Name, RuntimeVersion: "1.0.0",
		RuntimeApiVersion: "v1"}, nil
}

// Status returns the conditions, see [Runtime.SetCondition].
func (s *runtimeServer) Status(context.Context, *criv1.StatusRequest) (*criv1.StatusResponse, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	return &criv1.StatusResponse{
		Status: &criv1.RuntimeStatus{Conditions: slices.Clone(s.s.conditions)},
		RuntimeHandlers: []*criv1.RuntimeHandler{{Features: &criv1.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true,
			UserNamespaces: true}}},
		Features: &criv1.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}, nil
}

// RuntimeConfig returns the cgroup driver.
func (s *runtimeServer) RuntimeConfig(context.Context,
	*criv1.RuntimeConfigRequest) (*criv1.RuntimeConfigResponse, error) {
	return &criv1.RuntimeConfigResponse{Linux: &criv1.LinuxRuntimeConfiguration{
		CgroupDriver: criv1.CgroupDriver_CGROUPFS}}, nil
}

// UpdateRuntimeConfig has no effect.
func (s *runtimeServer) UpdateRuntimeConfig(context.Context,
	*criv1.UpdateRuntimeConfigRequest) (*criv1.UpdateRuntimeConfigResponse, error) {
	return &criv1.UpdateRuntimeConfigResponse{}, nil
}

// UpdatePodSandboxResources has no effect on a ready sandbox, and fails for others.
func (s *runtimeServer) UpdatePodSandboxResources(_ context.Context,
	req *criv1.UpdatePodSandboxResourcesRequest) (*criv1.UpdatePodSandboxResourcesResponse, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	switch sb := s.s.sandboxes.byID[req.GetPodSandboxId()]; {
	case sb == nil:
		return nil, notFound("sandbox", req.GetPodSandboxId())
	case !sb.ready:
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %q is not ready", sb.id)
	}
	return &criv1.UpdatePodSandboxResourcesResponse{}, nil
}

// RunPodSandbox creates a ready sandbox. Its name, made of the pod's name and the
// attempt, must be free.
func (s *runtimeServer) RunPodSandbox(_ context.Context,
	req *criv1.RunPodSandboxRequest) (*criv1.RunPodSandboxResponse, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	meta := req.GetConfig().GetMetadata()
	if meta == nil {
		return nil, status.Error(codes.InvalidArgument, "the sandbox has no metadata")
	}
	if name := sandboxName(meta); s.s.names[name] {
		return nil, status.Errorf(codes.AlreadyExists, "sandbox name %q is taken", name)
	}
	sb := s.s.addSandbox(req.GetConfig(), req.GetRuntimeHandler())
	return &criv1.RunPodSandboxResponse{PodSandboxId: sb.id}, nil
}

// addSandbox adds a ready sandbox, whose name is free. mu is held.
func (s *service) addSandbox(config *criv1.PodSandboxConfig, handler string) *sandbox {
	sb := &sandbox{
		pod: podOf(config.GetMetadata()), config: config, handler: handler,
		ready: true, lost: make(chan struct{}), created: time.Now().UnixNano(),
	}
	sb.seq, sb.id = s.newID("s")
	if sb.network() != criv1.NamespaceMode_NODE {
		sb.ips = []string{fmt.Sprintf("10.%d.%d.%d", byte(sb.seq>>16), byte(sb.seq>>8), byte(sb.seq))}
		if s.opts.PodIPs != nil {
			sb.ips = slices.Clone(s.opts.PodIPs(sb.pod))
		}
	}
	s.names[sandboxName(config.GetMetadata())] = true
	s.sandboxes.add(sb)
	s.emit(sb, nil, criv1.ContainerEventType_CONTAINER_CREATED_EVENT)
	s.emit(sb, nil, criv1.ContainerEventType_CONTAINER_STARTED_EVENT)
	return sb
}

func (sb *sandbox) network() criv1.NamespaceMode {
	return sb.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork()
}

func (sb *sandbox) criState() criv1.PodSandboxState {
	if sb.ready {
		return criv1.PodSandboxState_SANDBOX_READY
	}
	return criv1.PodSandboxState_SANDBOX_NOTREADY
}

func (sb *sandbox) status() *criv1.PodSandboxStatus {
	st := &criv1.PodSandboxStatus{
		Id: sb.id, Metadata: sb.config.GetMetadata(), State: sb.criState(), CreatedAt: sb.created,
		Network: &criv1.PodSandboxNetworkStatus{}, RuntimeHandler: sb.handler,
		Linux: &criv1.LinuxPodSandboxStatus{
			Namespaces: &criv1.Namespace{Options: sb.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels: sb.config.GetLabels(), Annotations: sb.config.GetAnnotations(),
	}
	if sb.ready {
		for i, ip := range sb.ips {
			if i == 0 {
				st.Network.Ip = ip
				continue
			}
			st.Network.AdditionalIps = append(st.Network.AdditionalIps, &criv1.PodIP{Ip: ip})
		}
	}
	return st
}

// StopPodSandbox kills the containers of the sandbox. It succeeds for sandboxes that are
// not ready or do not exist.
func (s *runtimeServer) StopPodSandbox(ctx context.Context,
	req *criv1.StopPodSandboxRequest) (*criv1.StopPodSandboxResponse, error) {
	if err := s.s.stopSandbox(ctx, req.GetPodSandboxId()); err != nil {
		return nil, err
	}
	return &criv1.StopPodSandboxResponse{}, nil
}

func (s *service) stopSandbox(ctx context.Context, id string) error {
	s.mu.Lock()
	sb := s.sandboxes.byID[id]
	var containers []*container
	if sb != nil {
		containers = slices.Clone(sb.containers)
	}
	s.mu.Unlock()
	for _, c := range containers {
		if err := s.kill(ctx, c); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose(sb)
	return nil
}

// lose makes a sandbox not ready. mu is held.
func (s *service) lose(sb *sandbox) {
	if sb != nil && sb.ready {
		sb.ready, sb.item = false, nil
		close(sb.lost)
		s.emit(sb, nil, criv1.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// readySandbox returns a ready sandbox by its ID.
func (s *service) readySandbox(id string) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb := s.sandboxes.byID[id]
	switch {
	case sb == nil:
		return nil, notFound("sandbox", id)
	case !sb.ready:
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %q is not running", id)
	}
	return sb, nil
}

// RemovePodSandbox removes the sandbox with all its containers, after killing those that
// run. It succeeds if there is no such sandbox.
func (s *runtimeServer) RemovePodSandbox(ctx context.Context,
	req *criv1.RemovePodSandboxRequest) (*criv1.RemovePodSandboxResponse, error) {
	if err := s.s.stopSandbox(ctx, req.GetPodSandboxId()); err != nil {
		return nil, err
	}
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	if sb := s.s.sandboxes.byID[req.GetPodSandboxId()]; sb != nil {
		for _, c := range slices.Clone(sb.containers) {
			s.s.end(c, 137, "")
			s.s.drop(c)
		}
		s.s.dropSandbox(sb)
		s.s.emit(sb, nil, criv1.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return &criv1.RemovePodSandboxResponse{}, nil
}

// dropSandbox removes a sandbox without containers. mu is held.
func (s *service) dropSandbox(sb *sandbox) {
	s.sandboxes.remove(sb)
	delete(s.names, sandboxName(sb.config.GetMetadata()))
}

// PodSandboxStatus describes a sandbox.
func (s *runtimeServer) PodSandboxStatus(_ context.Context,
	req *criv1.PodSandboxStatusRequest) (*criv1.PodSandboxStatusResponse, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	sb := s.s.sandboxes.byID[req.GetPodSandboxId()]
	if sb == nil {
		return nil, notFound("sandbox", req.GetPodSandboxId())
	}
	return &criv1.PodSandboxStatusResponse{Status: sb.status(), Timestamp: time.Now().UnixNano()}, nil
}

// ListPodSandbox lists sandboxes in the order of their creation.
func (s *runtimeServer) ListPodSandbox(_ context.Context,
	req *criv1.ListPodSandboxRequest) (*criv1.ListPodSandboxResponse, error) {
	resp := &criv1.ListPodSandboxResponse{}
	resp.ProtoReflect().SetUnknown(join(s.s.listSandboxes(req.GetFilter())))
	return resp, nil
}

func (s *service) listSandboxes(f *criv1.PodSandboxFilter) []item {
	s.mu.Lock()
	defer s.mu.Unlock()
	var items []item
	for _, sb := range s.selectSandboxes(f.GetId(), f.GetLabelSelector()) {
		if f.GetState() == nil || f.GetState().GetState() == sb.criState() {
			items = append(items, sb.listed())
		}
	}
	return items
}
