package process

import (
	"context"
	"maps"
	"os"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// limit makes the cgroups of a container that is about to be created, and those of its pod, and returns the
// limits that are not enforced.
func (s *Server) limit(b *sandbox, rec *containerRecord) []shortfall {
	resources := rec.Config.GetLinux().GetResources()
	if b.rec.Cgroup.None() {
		rec.Cgroup = makeCgroups(s.cgroups.of(b.rec.Config.GetLinux().GetCgroupParent(), rec.ID))
		return enforce(rec.Cgroup, limitsOf(resources, s.opts.PIDLimit))
	}
	b.limiting.Lock()
	defer b.limiting.Unlock()
	if b.state() != criv1.PodSandboxState_SANDBOX_READY {
		return nil // its cgroups are removed, and no container is created in it
	}
	all := []*criv1.LinuxContainerResources{resources}
	for _, c := range s.containersOf(b) {
		all = append(all, c.rec.Config.GetLinux().GetResources())
	}
	for _, r := range all {
		b.unlimited.cpu = b.unlimited.cpu || r.GetCpuQuota() <= 0
		b.unlimited.memory = b.unlimited.memory || r.GetMemoryLimitInBytes() <= 0
	}
	// The pod first: a group must not use more than that, whatever its containers have.
	pod := makeCgroups(b.rec.Cgroup)
	missed := enforce(pod, s.podLimits(b))
	rec.Cgroup = makeCgroups(within(pod, rec.ID))
	return append(missed, enforce(rec.Cgroup, limitsOf(resources, 0))...)
}

// podLimits returns the limits of the pod. b.limiting must be held.
func (s *Server) podLimits(b *sandbox) []limit {
	b.mu.Lock()
	updated := b.rec.Updated
	b.mu.Unlock()
	if updated != nil {
		return podLimits(updated, s.opts.PIDLimit)
	}
	linux := b.rec.Config.GetLinux()
	r := podResources(linux.GetResources(), linux.GetOverhead())
	// As kubelet sends them, the limits of a sandbox are sums over the containers that have one. They limit
	// the pod if each container has one.
	if b.unlimited.cpu {
		r.CpuQuota = -1
	}
	if b.unlimited.memory {
		r.MemoryLimitInBytes = -1
	}
	return podLimits(r, s.opts.PIDLimit)
}

// podLimits returns the limits for the resources of a pod. If the limits of its containers are enforced, its
// own need no warning.
func podLimits(r *criv1.LinuxContainerResources, pids int64) []limit {
	limits := limitsOf(r, 0)
	for i := range limits {
		limits[i].optional = true
	}
	return append(limits, limitsOf(nil, pids)...)
}

// podResources returns the resources of a pod with its overhead. A limit of 0 is none.
func podResources(r, overhead *criv1.LinuxContainerResources) *criv1.LinuxContainerResources {
	sum := func(a, b int64) int64 {
		if a <= 0 {
			return -1
		}
		return a + max(b, 0)
	}
	// Quotas are of the same period, unless the client is none of kubelet's kind.
	quota := overhead.GetCpuQuota()
	if overhead.GetCpuPeriod() != r.GetCpuPeriod() {
		quota = 0
	}
	return &criv1.LinuxContainerResources{
		CpuShares: r.GetCpuShares() + overhead.GetCpuShares(), CpuPeriod: r.GetCpuPeriod(),
		CpuQuota:           sum(r.GetCpuQuota(), quota),
		MemoryLimitInBytes: sum(r.GetMemoryLimitInBytes(), overhead.GetMemoryLimitInBytes()),
	}
}

// pidsOfContainer is the limit of processes of a container itself: its pod has it, if the pod has cgroups.
func (s *Server) pidsOfContainer(c *container) int64 {
	if b, err := s.sandbox(c.rec.SandboxID); err == nil && !b.rec.Cgroup.None() {
		return 0
	}
	return s.opts.PIDLimit
}

// LimitsPods reports whether the server can make cgroups that limit the CPU and the memory of a pod. It makes one, and
// removes it.
func (s *Server) LimitsPods() bool {
	c := makeCgroups(s.cgroups.ofPod("probe"))
	defer func() {
		for _, dir := range append(slices.Collect(maps.Values(c.V1)), c.V2) {
			_ = os.Remove(dir) // one that stays is removed by the next server
		}
	}()
	limits := limitsOf(&criv1.LinuxContainerResources{CpuQuota: defaultCPUPeriod, MemoryLimitInBytes: 1 << 30}, 0)
	return !c.None() && len(enforce(c, limits)) == 0
}

// UpdatePodSandboxResources implements CRI. It changes the limits of the pod. Without cgroups of the pod
// there are none, and it changes nothing.
func (s *runtimeService) UpdatePodSandboxResources(_ context.Context,
	req *criv1.UpdatePodSandboxResourcesRequest) (*criv1.UpdatePodSandboxResourcesResponse, error) {
	b, err := s.sandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if b.rec.Cgroup.None() {
		return &criv1.UpdatePodSandboxResourcesResponse{}, nil
	}
	b.limiting.Lock()
	defer b.limiting.Unlock()
	updated := podResources(req.GetResources(), req.GetOverhead())
	if refused := change(b.rec.Cgroup, s.podLimits(b), podLimits(updated, s.opts.PIDLimit)); refused != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %s: %s", b.rec.ID, refused)
	}
	b.mu.Lock()
	b.rec.Updated = updated
	rec := b.rec
	b.mu.Unlock()
	if err := supervise.WriteFile(s.sandboxFile(rec.ID), &rec); err != nil {
		return nil, status.Errorf(codes.Internal, "sandbox %s: recording its resources: %v", rec.ID, err)
	}
	return &criv1.UpdatePodSandboxResourcesResponse{}, nil
}
