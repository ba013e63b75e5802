package cri

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// inspectAtOnce is the number of parallel status calls of one inspection: a pod that
// crashes often may have many dead instances.
const inspectAtOnce = 8

// InspectPod implements [runtime.Inspector].
//
// While [Runtime.WatchEvents] receives events, it makes one status call for each sandbox and
// each container of the pod, in parallel, and none for those that were dead already at an
// earlier inspection. Their IDs are from the last list, from the calls of this Runtime,
// and from events. So a pod that has nothing takes no call. What another client of the
// runtime creates for the pod is in the status when its event has come, or after the next
// list.
//
// Without events it makes two list calls before, which it shares with other inspections that
// begin while a list is under way. So does one inspection after a call that has
// failed, and that may have created something. Sandboxes and containers that are removed
// meanwhile are omitted.
func (r *Runtime) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	if ref.UID == "" {
		return nil, fmt.Errorf("pod %s: InspectPod: a UID is required", ref)
	}
	typ, err := r.typeName(ctx)
	if err != nil {
		return nil, err
	}
	about := "pod " + ref.String()
	items, complete := r.index.of(ref.UID)
	if !complete {
		if items, err = r.listPod(ctx, about, typ, ref); err != nil {
			return nil, err
		}
	}
	sandboxes := make([]*runtime.SandboxStatus, len(items.sandboxes))
	containers := make([]*inspectedContainer, len(items.containers))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(inspectAtOnce)
	for i := range items.sandboxes {
		s := &items.sandboxes[i]
		if sandboxes[i] = s.status; s.status == nil {
			g.Go(func() (err error) {
				sandboxes[i], err = r.inspectSandbox(gctx, about, s.id)
				return r.unlessRemoved(s.id, err)
			})
		}
	}
	for i := range items.containers {
		c := &items.containers[i]
		if containers[i] = c.dead; c.dead == nil {
			g.Go(func() (err error) {
				containers[i], err = r.inspectContainer(gctx, about, typ, c)
				return r.unlessRemoved(c.id, err)
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}

	sandboxes = slices.DeleteFunc(sandboxes, func(s *runtime.SandboxStatus) bool { return s == nil })
	containers = slices.DeleteFunc(containers, func(c *inspectedContainer) bool { return c == nil })
	sortSandboxes(sandboxes, func(s *runtime.SandboxStatus) sandboxKey {
		return sandboxKey{attempt: s.Attempt, created: s.CreatedAt.UnixNano(), id: s.ID}
	})
	sortContainers(containers, func(c *inspectedContainer) containerKey {
		return containerKey{name: c.Name, attempt: c.attempt, created: c.CreatedAt.UnixNano(), id: c.ID.ID}
	})
	status := &runtime.PodStatus{PodRef: ref}
	for _, s := range sandboxes {
		status.Sandboxes = append(status.Sandboxes, *s)
	}
	for _, c := range containers {
		status.Containers = append(status.Containers, c.ContainerStatus)
	}
	if ready := status.ReadySandbox(); ready != nil {
		status.IPs = ready.IPs
	}
	return status, nil
}

// podLists is a list of one pod or of all, with its number in the index.
type podLists struct {
	pods   map[types.UID]*runtime.Pod
	number uint64
}

// listPod lists the sandboxes and containers of one pod. Inspections that wait for a list share a
// list of all.
func (r *Runtime) listPod(ctx context.Context, about, typ string, ref runtime.PodRef) (podItems, error) {
	list, err := r.lists.do(ctx, "waiting for a list", func(shared bool) (list podLists, err error) {
		var pods []*runtime.Pod
		if shared {
			pods, list.number, err = r.listAll(ctx, typ)
		} else {
			list.number = r.index.begin()
			var l listing
			l, err = r.list(ctx, "", ref.UID)
			pods = assemble(typ, l)
		}
		list.pods = make(map[types.UID]*runtime.Pod, len(pods))
		for _, pod := range pods {
			list.pods[pod.UID] = pod
		}
		return list, err
	})
	if err != nil {
		return podItems{}, fmt.Errorf("%s: %w", about, err)
	}
	pod := list.pods[ref.UID]
	if pod == nil {
		pod = &runtime.Pod{PodRef: ref}
	}
	return r.index.listedPod(pod, list.number), nil
}

// unlessRemoved returns the error of a call about a sandbox or a container, or nil if that
// does not exist any more.
func (r *Runtime) unlessRemoved(id string, err error) error {
	if errors.Is(err, runtime.ErrNotFound) {
		r.index.notFound(id)
		return nil
	}
	return err
}

func unlessNotFound(err error) error {
	if errors.Is(err, runtime.ErrNotFound) {
		return nil
	}
	return err
}

func (r *Runtime) inspectSandbox(ctx context.Context, about, id string) (*runtime.SandboxStatus, error) {
	resp, err := call(ctx, r, "PodSandboxStatus", about, 0, r.rs.PodSandboxStatus,
		&criv1.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, err
	}
	s := resp.GetStatus()
	if s == nil {
		return nil, fmt.Errorf("%s: PodSandboxStatus: the runtime returned no status of sandbox %s", about, id)
	}
	state := sandboxState(s.GetState())
	if r.isLeft(id) {
		state = runtime.SandboxNotReady
	}
	options := s.GetLinux().GetNamespaces().GetOptions()
	status := &runtime.SandboxStatus{
		Sandbox: runtime.Sandbox{
			ID:        id,
			Attempt:   s.GetMetadata().GetAttempt(),
			State:     state,
			CreatedAt: unixTime(s.GetCreatedAt()),
		},
		HostNetwork:    options != nil && options.GetNetwork() == criv1.NamespaceMode_NODE,
		HostIPC:        options.GetIpc() == criv1.NamespaceMode_NODE,
		PID:            pidNamespace(options),
		UserNamespace:  userNamespace(options.GetUsernsOptions()),
		RuntimeHandler: s.GetRuntimeHandler(),
		Labels:         s.GetLabels(),
		Annotations:    s.GetAnnotations(),
	}
	var known bool
	status.IPs, known = addresses(s.GetNetwork())
	status.AddressUnknown = !known && !status.HostNetwork
	r.index.sawSandbox(status)
	return status, nil
}

// userNamespace returns the user namespace that a runtime reports, or nil if it is that of the host or not reported.
func userNamespace(users *criv1.UserNamespace) *runtime.UserNamespace {
	if users == nil || users.GetMode() != criv1.NamespaceMode_POD {
		return nil
	}
	ids := func(list []*criv1.IDMapping) (out []runtime.IDMapping) {
		for _, m := range list {
			out = append(out, runtime.IDMapping{ContainerID: m.GetContainerId(), HostID: m.GetHostId(),
				Length: m.GetLength()})
		}
		return out
	}
	return &runtime.UserNamespace{UIDs: ids(users.GetUids()), GIDs: ids(users.GetGids())}
}

// addresses returns the sandbox's addresses, the primary one first, and false if they are
// not known: by CRI, a runtime that does not handle the network has no status of it. If
// one of them is malformed, the meaning of the others is unknown, too. An address with a zone is
// malformed: a zone has a meaning on one machine only, and can be any text, also of several lines.
func addresses(network *criv1.PodSandboxNetworkStatus) (ips []string, known bool) {
	if network == nil {
		return nil, false
	}
	if ip := network.GetIp(); ip != "" {
		ips = append(ips, ip)
	}
	for _, more := range network.GetAdditionalIps() {
		ips = append(ips, more.GetIp())
	}
	if slices.ContainsFunc(ips,
		func(ip string) bool { addr, err := netip.ParseAddr(ip); return err != nil || addr.Zone() != "" }) {
		return nil, false
	}
	return ips, true
}

func (r *Runtime) inspectContainer(ctx context.Context, about, typ string,
	item *containerItem) (*inspectedContainer, error) {
	about += ", container " + item.name
	resp, err := call(ctx, r, "ContainerStatus", about, 0, r.rs.ContainerStatus,
		&criv1.ContainerStatusRequest{ContainerId: item.id})
	if err != nil {
		return nil, err
	}
	s := resp.GetStatus()
	if s == nil {
		return nil, fmt.Errorf("%s: ContainerStatus: the runtime returned no status of %s", about, item.id)
	}
	record, err := crimeta.ReadRecord(s.GetAnnotations())
	if err != nil {
		r.opts.Logger.V(1).Info("Container has annotations that cannot be read", "container", about, "err", err.Error())
	}
	status := &inspectedContainer{
		ContainerStatus: statusOf(runtime.ContainerID{Type: typ, ID: item.id}, item.sandboxID, s, &record),
		attempt:         s.GetMetadata().GetAttempt(),
	}
	if status.State == runtime.ContainerExited {
		status.Message = joinMessages(status.Message, terminationMessage(s, &record))
	}
	r.index.sawContainer(status)
	return status, nil
}

// statusOf converts CRI's status of a container, without the termination message, which
// is read from files.
func statusOf(id runtime.ContainerID, sandboxID string, s *criv1.ContainerStatus,
	record *crimeta.Record) runtime.ContainerStatus {
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
		ResizeHash:   record.ResizeHash,
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
		status.Reason, status.Message = short(s.GetReason()), short(s.GetMessage())
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

// resourcesOf converts cgroup values to the API's resources. It returns nil if the runtime
// does not report them.
func resourcesOf(l *criv1.LinuxContainerResources) *v1.ResourceRequirements {
	if l == nil {
		return nil
	}
	limits, requests := v1.ResourceList{}, v1.ResourceList{}
	if quota, period := l.GetCpuQuota(), l.GetCpuPeriod(); quota > 0 && period > 0 && quota <= math.MaxInt64/1000 {
		limits[v1.ResourceCPU] = *resource.NewMilliQuantity(quota*1000/period, resource.DecimalSI)
	}
	if bytes := l.GetMemoryLimitInBytes(); bytes > 0 {
		limits[v1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	// 1024 shares are one CPU. They were rounded down from milli-CPUs, so rounding up
	// restores these. 2 is the kernel's minimum: a request of 2m, or none.
	if shares := l.GetCpuShares(); shares > 0 && shares <= math.MaxInt64/1000 {
		requests[v1.ResourceCPU] = *resource.NewMilliQuantity((shares*1000+1023)/1024, resource.DecimalSI)
	}
	for _, file := range []string{"memory.min", "memory.low"} { // see package cgroup
		if bytes, err := strconv.ParseInt(l.GetUnified()[file], 10, 64); err == nil && bytes > 0 {
			requests[v1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
		}
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
func pidNamespace(options *criv1.NamespaceOption) podspec.PIDNamespace {
	if options == nil {
		return ""
	}
	switch options.GetPid() {
	case criv1.NamespaceMode_NODE:
		return podspec.PIDHost
	case criv1.NamespaceMode_POD:
		return podspec.PIDPod
	default:
		return podspec.PIDContainer
	}
}
