package cri

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// inspectAtOnce is the number of parallel status calls of one inspection: a pod that
// crashes often may have many dead instances.
const inspectAtOnce = 8

// InspectPod implements [runtime.Inspector] with two list calls in parallel, and then one
// status call for each container, and for the ready sandbox unless its status is
// remembered, in parallel. Sandboxes and containers that are removed meanwhile are
// omitted.
func (r *Runtime) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	if ref.UID == "" {
		return nil, fmt.Errorf("pod %s: InspectPod: a UID is required", ref)
	}
	typ, err := r.typeName(ctx)
	if err != nil {
		return nil, err
	}
	about := "pod " + ref.String()
	l, err := r.list(ctx, about, ref.UID)
	if err != nil {
		return nil, err
	}
	sortSandboxes(l.sandboxes)
	sortContainers(l.containers)
	sandboxes := make([]*runtime.SandboxStatus, len(l.sandboxes))
	containers := make([]*runtime.ContainerStatus, len(l.containers))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(inspectAtOnce)
	for i, s := range l.sandboxes {
		if s.GetState() != criv1.PodSandboxState_SANDBOX_READY {
			// A status call would add addresses and namespaces, which are no longer needed.
			sandboxes[i] = listedSandbox(s)
			continue
		}
		if sandboxes[i] = r.pods.readySandbox(ref.UID, s.GetId()); sandboxes[i] != nil {
			continue
		}
		g.Go(func() (err error) {
			sandboxes[i], err = r.inspectSandbox(gctx, about, ref.UID, s.GetId())
			return unlessNotFound(err)
		})
	}
	for i, c := range l.containers {
		g.Go(func() (err error) {
			containers[i], err = r.inspectContainer(gctx, about, typ, c)
			return unlessNotFound(err)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}

	status := &runtime.PodStatus{PodRef: ref}
	for _, s := range sandboxes {
		if s != nil {
			status.Sandboxes = append(status.Sandboxes, *s)
		}
	}
	for _, c := range containers {
		if c != nil {
			status.Containers = append(status.Containers, *c)
		}
	}
	if ready := status.ReadySandbox(); ready != nil {
		status.IPs = ready.IPs
	}
	return status, nil
}

func unlessNotFound(err error) error {
	if errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	return err
}

func listedSandbox(s *criv1.PodSandbox) *runtime.SandboxStatus {
	return &runtime.SandboxStatus{
		Sandbox:        sandboxOf(s),
		RuntimeHandler: s.GetRuntimeHandler(),
		Labels:         s.GetLabels(),
		Annotations:    s.GetAnnotations(),
	}
}

func (r *Runtime) inspectSandbox(ctx context.Context, about string, uid types.UID, id string) (*runtime.SandboxStatus, error) {
	resp, err := call(ctx, r, "PodSandboxStatus", about, 0, r.rs.PodSandboxStatus, &criv1.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, err
	}
	s := resp.GetStatus()
	if s == nil {
		return nil, fmt.Errorf("%s: PodSandboxStatus: the runtime returned no status of sandbox %s", about, id)
	}
	options := s.GetLinux().GetNamespaces().GetOptions()
	status := &runtime.SandboxStatus{
		Sandbox: runtime.Sandbox{
			ID:        id,
			Attempt:   s.GetMetadata().GetAttempt(),
			State:     sandboxState(s.GetState()),
			CreatedAt: unixTime(s.GetCreatedAt()),
		},
		IPs:            addresses(s.GetNetwork()),
		HostNetwork:    options != nil && options.GetNetwork() == criv1.NamespaceMode_NODE,
		HostIPC:        options.GetIpc() == criv1.NamespaceMode_NODE,
		PID:            pidNamespace(options),
		RuntimeHandler: s.GetRuntimeHandler(),
		Labels:         s.GetLabels(),
		Annotations:    s.GetAnnotations(),
	}
	r.pods.remember(uid, status)
	return status, nil
}

// addresses returns the sandbox's addresses, the primary one first. It returns none if
// one of them is malformed, since the meaning of the others is then unknown.
func addresses(network *criv1.PodSandboxNetworkStatus) []string {
	var ips []string
	if ip := network.GetIp(); ip != "" {
		ips = append(ips, ip)
	}
	for _, more := range network.GetAdditionalIps() {
		ips = append(ips, more.GetIp())
	}
	if slices.ContainsFunc(ips, func(ip string) bool { _, err := netip.ParseAddr(ip); return err != nil }) {
		return nil
	}
	return ips
}

func (r *Runtime) inspectContainer(ctx context.Context, about, typ string, listed *criv1.Container) (*runtime.ContainerStatus, error) {
	name := containerName(listed.GetLabels(), listed.GetMetadata())
	about += ", container " + name
	resp, err := call(ctx, r, "ContainerStatus", about, 0, r.rs.ContainerStatus, &criv1.ContainerStatusRequest{ContainerId: listed.GetId()})
	if err != nil {
		return nil, err
	}
	s := resp.GetStatus()
	if s == nil {
		return nil, fmt.Errorf("%s: ContainerStatus: the runtime returned no status of %s", about, listed.GetId())
	}
	record, err := crimeta.ReadRecord(s.GetAnnotations())
	if err != nil {
		r.opts.Logger.V(1).Info("Container has annotations that cannot be read", "container", about, "err", err.Error())
	}
	status := statusOf(runtime.ContainerID{Type: typ, ID: listed.GetId()}, listed.GetPodSandboxId(), s, &record)
	if status.State == runtime.ContainerExited {
		status.Message = joinMessages(status.Message, terminationMessage(s, &record))
	}
	return &status, nil
}

// statusOf converts CRI's status of a container, without the termination message, which
// is read from files.
func statusOf(id runtime.ContainerID, sandboxID string, s *criv1.ContainerStatus, record *crimeta.Record) runtime.ContainerStatus {
	status := runtime.ContainerStatus{
		Container: runtime.Container{
			ID:        id,
			Name:      containerName(s.GetLabels(), s.GetMetadata()),
			SandboxID: sandboxID,
			State:     containerState(s.GetState()),
			CreatedAt: unixTime(s.GetCreatedAt()),
			Hash:      record.Hash,
		},
		Image:        s.GetImage().GetImage(),
		ImageRef:     s.GetImageRef(),
		ImageID:      s.GetImageId(),
		RestartCount: record.RestartCount,
		Backoff:      record.Backoff,
		LogPath:      s.GetLogPath(),
		GracePeriod:  record.GracePeriod(),
		PreStop:      record.PreStop,
		Ports:        record.Ports,
		User:         userOf(s.GetUser()),
		StopSignal:   translate.StopSignalFromCRI(s.GetStopSignal()),
		Resources:    resourcesOf(s.GetResources().GetLinux()),
	}
	if status.ImageID == "" { // runtimes made before CRI had the field (Kubernetes 1.30)
		status.ImageID = status.ImageRef
	}
	if status.State != runtime.ContainerCreated {
		status.StartedAt = unixTime(s.GetStartedAt())
	}
	if status.State == runtime.ContainerExited {
		status.FinishedAt = unixTime(s.GetFinishedAt())
		status.ExitCode = s.GetExitCode()
		status.Reason, status.Message = s.GetReason(), s.GetMessage()
	}
	for _, m := range s.GetMounts() {
		status.Mounts = append(status.Mounts, runtime.Mount{
			HostPath:          m.GetHostPath(),
			ContainerPath:     m.GetContainerPath(),
			ReadOnly:          m.GetReadonly(),
			RecursiveReadOnly: m.GetRecursiveReadOnly(),
		})
	}
	return status
}

func userOf(u *criv1.ContainerUser) *v1.ContainerUser {
	linux := u.GetLinux()
	if linux == nil {
		return nil
	}
	return &v1.ContainerUser{Linux: &v1.LinuxContainerUser{
		UID:                linux.GetUid(),
		GID:                linux.GetGid(),
		SupplementalGroups: linux.GetSupplementalGroups(),
	}}
}

// resourcesOf converts cgroup values to the API's resources. It returns nil if there are
// none.
func resourcesOf(l *criv1.LinuxContainerResources) *v1.ResourceRequirements {
	limits, requests := v1.ResourceList{}, v1.ResourceList{}
	if quota, period := l.GetCpuQuota(), l.GetCpuPeriod(); quota > 0 && period > 0 && quota <= math.MaxInt64/1000 {
		limits[v1.ResourceCPU] = *resource.NewMilliQuantity(quota*1000/period, resource.DecimalSI)
	}
	if bytes := l.GetMemoryLimitInBytes(); bytes > 0 {
		limits[v1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	// 1024 shares are one CPU. They were rounded down from milli-CPUs, so rounding up
	// restores these. 2 is the kernel's minimum and means no request.
	if shares := l.GetCpuShares(); shares > 2 && shares <= math.MaxInt64/1000 {
		requests[v1.ResourceCPU] = *resource.NewMilliQuantity((shares*1000+1023)/1024, resource.DecimalSI)
	}
	if len(limits) == 0 && len(requests) == 0 {
		return nil
	}
	res := &v1.ResourceRequirements{}
	if len(limits) > 0 {
		res.Limits = limits
	}
	if len(requests) > 0 {
		res.Requests = requests
	}
	return res
}

// pidNamespace returns the PID namespace of the containers of a sandbox.
func pidNamespace(options *criv1.NamespaceOption) runtime.PIDNamespace {
	if options == nil {
		return ""
	}
	switch options.GetPid() {
	case criv1.NamespaceMode_NODE:
		return runtime.PIDHost
	case criv1.NamespaceMode_POD:
		return runtime.PIDPod
	default:
		return runtime.PIDContainer
	}
}
