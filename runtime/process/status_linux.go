package process

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// version is the reported version of this runtime. Nothing depends on it.
const version = "1.0.0"

// Version implements CRI.
func (s *runtimeService) Version(context.Context, *criv1.VersionRequest) (*criv1.VersionResponse, error) {
	return &criv1.VersionResponse{Version: "0.1.0", RuntimeName: Name, RuntimeVersion: version,
		RuntimeApiVersion: "v1"}, nil
}

// Status implements CRI. The runtime is always ready.
func (s *runtimeService) Status(_ context.Context, req *criv1.StatusRequest) (*criv1.StatusResponse, error) {
	resp := &criv1.StatusResponse{
		Status: &criv1.RuntimeStatus{Conditions: []*criv1.RuntimeCondition{
			{Type: criv1.RuntimeReady, Status: true},
			{Type: criv1.NetworkReady, Status: true, Reason: "HostNetwork",
				Message: "every pod has the host's network"},
			{Type: runtime.ConditionHostProcesses, Status: true, Reason: runtime.ConditionHostProcesses,
				Message: "containers are processes of the host; an image is a name only"},
		}},
		RuntimeHandlers: []*criv1.RuntimeHandler{
			{Name: "", Features: &criv1.RuntimeHandlerFeatures{}},
			{Name: Name, Features: &criv1.RuntimeHandlerFeatures{}},
		},
		Features: &criv1.RuntimeFeatures{SupplementalGroupsPolicy: s.host.root()},
	}
	if req.GetVerbose() {
		resp.Info = info(map[string]any{"config": map[string]any{
			"dir": s.opts.Dir, "cgroupRoot": s.cgroups.root, "noCgroups": s.cgroups.off,
			"pidLimit": s.opts.PIDLimit, "hostIPs": s.ips, "uid": s.host.UID,
		}})
	}
	return resp, nil
}

// RuntimeConfig implements CRI.
func (s *runtimeService) RuntimeConfig(context.Context,
	*criv1.RuntimeConfigRequest) (*criv1.RuntimeConfigResponse, error) {
	return &criv1.RuntimeConfigResponse{Linux: &criv1.LinuxRuntimeConfiguration{
		CgroupDriver: criv1.CgroupDriver_CGROUPFS}}, nil
}

// UpdateRuntimeConfig implements CRI. It ignores the CIDR, since there is no pod network.
func (s *runtimeService) UpdateRuntimeConfig(context.Context,
	*criv1.UpdateRuntimeConfigRequest) (*criv1.UpdateRuntimeConfigResponse, error) {
	return &criv1.UpdateRuntimeConfigResponse{}, nil
}

// ContainerStatus implements CRI. While the container runs, its message has the warnings of
// its creation.
func (s *runtimeService) ContainerStatus(_ context.Context,
	req *criv1.ContainerStatusRequest) (*criv1.ContainerStatusResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	resp := &criv1.ContainerStatusResponse{Status: c.criStatus()}
	if req.GetVerbose() {
		c.mu.Lock()
		defer c.mu.Unlock()
		detail := map[string]any{"sandboxID": c.rec.SandboxID, "config": c.rec.Config, "cgroup": c.rec.Cgroup,
			"warnings": c.rec.Warnings, "exit": c.exit}
		if c.state == criv1.ContainerState_CONTAINER_RUNNING {
			detail["pid"], detail["process"] = c.process.Command.PID, c.process
		}
		resp.Info = info(detail)
	}
	return resp, nil
}

// info returns the verbose part of an answer, under the key that crictl prints.
func info(v map[string]any) map[string]string {
	data, err := json.Marshal(v)
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	return map[string]string{"info": string(data)}
}

func (c *container) criStatus() *criv1.ContainerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	config := c.rec.Config
	st := &criv1.ContainerStatus{
		Id: c.rec.ID, Metadata: config.GetMetadata(), State: c.state, CreatedAt: c.rec.CreatedAt,
		Image: imageSpec(config), ImageRef: imageRef(config), ImageId: imageRef(config),
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(), Mounts: config.GetMounts(),
		LogPath: c.rec.LogPath, StopSignal: config.GetStopSignal(),
		User: &criv1.ContainerUser{Linux: &criv1.LinuxContainerUser{Uid: int64(c.rec.User.UID),
			Gid: int64(c.rec.User.GID)}},
	}
	if st.StopSignal == criv1.Signal_SIGNAL_RUNTIME_DEFAULT {
		st.StopSignal = criv1.Signal_SIGNAL_SIGTERM
	}
	for _, g := range c.rec.User.Groups {
		st.User.Linux.SupplementalGroups = append(st.User.Linux.SupplementalGroups, int64(g))
	}
	if c.resources != nil {
		st.Resources = &criv1.ContainerResources{Linux: c.resources}
	}
	switch c.state {
	case criv1.ContainerState_CONTAINER_RUNNING:
		st.StartedAt = c.started.UnixNano()
		st.Message = strings.Join(c.rec.Warnings, "; ")
	case criv1.ContainerState_CONTAINER_EXITED:
		if c.exit != nil {
			st.ExitCode, st.Reason, st.Message = int32(c.exit.Code), c.reason, c.message
			st.FinishedAt = c.exit.FinishedAt.UnixNano()
			if !c.started.IsZero() {
				st.StartedAt = c.started.UnixNano()
			}
		}
	}
	return st
}

// imageSpec returns the image with the name that the user gave.
func imageSpec(config *criv1.ContainerConfig) *criv1.ImageSpec {
	if user := config.GetImage().GetUserSpecifiedImage(); user != "" {
		return &criv1.ImageSpec{Image: user, Annotations: config.GetImage().GetAnnotations(), UserSpecifiedImage: user}
	}
	return config.GetImage()
}

func imageRef(config *criv1.ContainerConfig) string { return config.GetImage().GetImage() }

// ListContainers implements CRI.
func (s *runtimeService) ListContainers(_ context.Context,
	req *criv1.ListContainersRequest) (*criv1.ListContainersResponse, error) {
	return &criv1.ListContainersResponse{Containers: s.listContainers(req.GetFilter())}, nil
}

func (s *Server) listContainers(f *criv1.ContainerFilter) []*criv1.Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*criv1.Container
	for _, c := range s.containers {
		config := c.rec.Config
		c.mu.Lock()
		st := c.state
		c.mu.Unlock()
		if !strings.HasPrefix(c.rec.ID, f.GetId()) || !strings.HasPrefix(c.rec.SandboxID, f.GetPodSandboxId()) ||
			f.GetState() != nil && f.GetState().GetState() != st || !selects(f.GetLabelSelector(), config.GetLabels()) {
			continue
		}
		all = append(all, &criv1.Container{
			Id: c.rec.ID, PodSandboxId: c.rec.SandboxID, Metadata: config.GetMetadata(),
			Image: imageSpec(config), ImageRef: imageRef(config), ImageId: imageRef(config), State: st,
			CreatedAt: c.rec.CreatedAt,
			Labels:    config.GetLabels(), Annotations: config.GetAnnotations(),
		})
	}
	return all
}

func stateName(s criv1.ContainerState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "CONTAINER_"))
}

// signalNumber returns the number of a signal by its name in CRI. It is SIGTERM if there is
// no such signal. The names of real-time signals count up from SIGRTMIN or down from
// SIGRTMAX.
func signalNumber(name string) unix.Signal {
	if sig := unix.SignalNum(name); sig != 0 {
		return sig
	}
	const first, last = 34, 64 // of real-time signals; the C library reserves two
	base, sign := first, 1
	rest, ok := strings.CutPrefix(name, "SIGRTMIN")
	if !ok {
		base, sign = last, -1
		if rest, ok = strings.CutPrefix(name, "SIGRTMAX"); !ok {
			return unix.SIGTERM
		}
	}
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "PLUS"), "MINUS")
	n, err := strconv.Atoi(rest)
	if rest != "" && err != nil || n < 0 || n > last-first {
		return unix.SIGTERM
	}
	return unix.Signal(base + sign*n)
}
