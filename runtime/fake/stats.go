package fake

import (
	"context"
	"time"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Usage is the resource usage of a running container, for statistics and metrics. The
// zero value is one idle process.
type Usage struct {
	// MilliCPU is the CPU usage in thousandths of a processor. CPU time adds up with the
	// clock.
	MilliCPU uint64
	// Memory is the working set in bytes, all of it resident.
	Memory uint64
	// Disk is the size of its writable layer in bytes.
	Disk uint64
	// Processes is their number. Default: 1.
	Processes uint64
}

// SetUsage sets the usage of the matching running containers, and returns their number.
// Instances that start later have the usage of their [Behavior].
func (r *Runtime) SetUsage(t Target, u Usage) int {
	return r.each(t, func(c *container) {
		c.settleUsage()
		c.usage = u
	})
}

// settleUsage adds the CPU time that a running container has used since settled. mu is
// held.
func (c *container) settleUsage() {
	now := time.Now()
	if c.state == criv1.ContainerState_CONTAINER_RUNNING {
		c.usedCPU += now.Sub(c.settled) * time.Duration(c.usage.MilliCPU) / 1000
	}
	c.settled = now
}

func value(n uint64) *criv1.UInt64Value { return &criv1.UInt64Value{Value: n} }

// total is the sum of the usage of containers.
type total struct {
	Usage
	cpu time.Duration
}

func (t *total) add(c *container) {
	c.settleUsage()
	t.cpu += c.usedCPU
	t.MilliCPU += c.usage.MilliCPU
	t.Memory += c.usage.Memory
	t.Processes += max(c.usage.Processes, 1)
}

func (t *total) cpuUsage(now int64) *criv1.CpuUsage {
	return &criv1.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: value(uint64(t.cpu)),
		UsageNanoCores: value(t.MilliCPU * 1e6)}
}

func (t *total) memoryUsage(now int64) *criv1.MemoryUsage {
	return &criv1.MemoryUsage{
		Timestamp: now, WorkingSetBytes: value(t.Memory), UsageBytes: value(t.Memory), RssBytes: value(t.Memory),
		PageFaults: value(0), MajorPageFaults: value(0),
	}
}

// stats returns the statistics of a container. mu is held.
func (c *container) stats() *criv1.ContainerStats {
	var t total
	t.add(c)
	now := time.Now().UnixNano()
	st := &criv1.ContainerStats{
		Attributes: &criv1.ContainerAttributes{Id: c.id, Metadata: c.config.GetMetadata(), Labels: c.labels(),
			Annotations: c.config.GetAnnotations()},
		Cpu: t.cpuUsage(now), Memory: t.memoryUsage(now),
		WritableLayer: &criv1.FilesystemUsage{
			Timestamp: now, FsId: &criv1.FilesystemIdentifier{Mountpoint: "/fake"}, UsedBytes: value(c.usage.Disk),
			InodesUsed: value(0),
		},
	}
	if limit := c.resources.GetMemoryLimitInBytes(); limit > 0 {
		st.Memory.AvailableBytes = value(uint64(limit) - min(uint64(limit), c.usage.Memory))
	}
	return st
}

// stats returns the statistics of a sandbox, the sum of its running containers. mu is
// held.
func (sb *sandbox) stats() *criv1.PodSandboxStats {
	var t total
	linux := &criv1.LinuxPodSandboxStats{}
	for _, c := range sb.containers {
		if c.state == criv1.ContainerState_CONTAINER_RUNNING {
			t.add(c)
			linux.Containers = append(linux.Containers, c.stats())
		}
	}
	now := time.Now().UnixNano()
	linux.Cpu, linux.Memory = t.cpuUsage(now), t.memoryUsage(now)
	linux.Process = &criv1.ProcessUsage{Timestamp: now, ProcessCount: value(t.Processes)}
	return &criv1.PodSandboxStats{
		Attributes: &criv1.PodSandboxAttributes{Id: sb.id, Metadata: sb.config.GetMetadata(), Labels: sb.labels(),
			Annotations: sb.config.GetAnnotations()},
		Linux: linux,
	}
}

// ContainerStats returns the statistics of a container. An exited container has CPU time
// but no current usage.
func (s *runtimeServer) ContainerStats(_ context.Context,
	req *criv1.ContainerStatsRequest) (*criv1.ContainerStatsResponse, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	c := s.s.containers.byID[req.GetContainerId()]
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	return &criv1.ContainerStatsResponse{Stats: c.stats()}, nil
}

// ListContainerStats lists the statistics of running containers.
func (s *runtimeServer) ListContainerStats(_ context.Context,
	req *criv1.ListContainerStatsRequest) (*criv1.ListContainerStatsResponse, error) {
	return &criv1.ListContainerStatsResponse{Stats: s.s.listContainerStats(req.GetFilter())}, nil
}

func (s *service) listContainerStats(f *criv1.ContainerStatsFilter) []*criv1.ContainerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*criv1.ContainerStats
	for _, c := range s.selectContainers(f.GetId(), f.GetPodSandboxId(), f.GetLabelSelector()) {
		if c.state == criv1.ContainerState_CONTAINER_RUNNING {
			all = append(all, c.stats())
		}
	}
	return all
}

// PodSandboxStats returns the statistics of a sandbox.
func (s *runtimeServer) PodSandboxStats(_ context.Context,
	req *criv1.PodSandboxStatsRequest) (*criv1.PodSandboxStatsResponse, error) {
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	sb := s.s.sandboxes.byID[req.GetPodSandboxId()]
	if sb == nil {
		return nil, notFound("sandbox", req.GetPodSandboxId())
	}
	return &criv1.PodSandboxStatsResponse{Stats: sb.stats()}, nil
}

// ListPodSandboxStats lists the statistics of ready sandboxes.
func (s *runtimeServer) ListPodSandboxStats(_ context.Context,
	req *criv1.ListPodSandboxStatsRequest) (*criv1.ListPodSandboxStatsResponse, error) {
	return &criv1.ListPodSandboxStatsResponse{Stats: s.s.listSandboxStats(req.GetFilter())}, nil
}

func (s *service) listSandboxStats(f *criv1.PodSandboxStatsFilter) []*criv1.PodSandboxStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*criv1.PodSandboxStats
	for _, sb := range s.selectSandboxes(f.GetId(), f.GetLabelSelector()) {
		if sb.ready {
			all = append(all, sb.stats())
		}
	}
	return all
}
