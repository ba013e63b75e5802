package process

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// usage is the resource usage of a container.
type usage struct {
	at                       time.Time
	cpu                      time.Duration
	rss, workingSet          uint64
	minorFaults, majorFaults uint64
	processes                uint64
	memoryLimit              uint64 // 0 for none
}

// cpuSample is the CPU time at some point in time. Two of them make a rate.
type cpuSample struct {
	at  time.Time
	cpu time.Duration
}

// tick is a clock tick of /proc. USER_HZ is 100 on all architectures of Go.
const tick = time.Second / 100

// measure returns the usage of containers. It makes one pass over all processes. A process
// belongs to the container from whose supervisor it descends.
func measure(containers []*container) (map[*container]*usage, error) {
	owners := map[int]*container{}
	out := map[*container]*usage{}
	now := time.Now()
	for _, c := range containers {
		c.mu.Lock()
		u := &usage{at: now, memoryLimit: uint64(max(0, c.resources.GetMemoryLimitInBytes()))}
		if c.state == criv1.ContainerState_CONTAINER_RUNNING {
			if pid := c.process.Supervisor.PID; pid > 0 { // else it is not known
				owners[pid] = c
			}
		} else if c.exit != nil {
			u.cpu = c.exit.CPU
		}
		c.mu.Unlock()
		out[c] = u
	}
	if len(owners) == 0 {
		return out, nil
	}
	all, err := supervise.Processes()
	if err != nil {
		return nil, err
	}
	attribute(all, owners, out)
	for c, u := range out {
		cgroupUsage(c.rec.Cgroup, u)
	}
	return out, nil
}

// attribute adds the usage of each process to the container from whose supervisor it
// descends.
func attribute(all []supervise.Stat, owners map[int]*container, out map[*container]*usage) {
	parents := make(map[int]int, len(all))
	for _, st := range all {
		parents[st.PID] = st.PPID
	}
	owner := ownersOf(parents, owners)
	page := uint64(os.Getpagesize())
	for _, st := range all {
		if c := owners[st.PID]; c != nil {
			// Of the supervisor, only the usage of children that it has reaped counts.
			out[c].cpu += time.Duration(st.ChildUTime+st.ChildSTime) * tick
			continue
		}
		if c := owner(st.PPID); c != nil {
			u := out[c]
			u.cpu += time.Duration(st.UTime+st.STime+st.ChildUTime+st.ChildSTime) * tick
			u.rss += st.RSS * page
			u.minorFaults += st.MinorFaults
			u.majorFaults += st.MajorFaults
			u.processes++
		}
	}
	for _, c := range owners {
		out[c].workingSet = out[c].rss
	}
}

// ownersOf returns a function that returns the container from whose supervisor a process
// descends, or nil. It looks at each process once: a container can have a chain of as many
// processes as the machine.
func ownersOf(parents map[int]int, owners map[int]*container) func(pid int) *container {
	known := make(map[int]*container, len(parents))
	var path []int
	return func(pid int) (owner *container) {
		path = path[:0]
		for len(path) <= len(parents) { // the list is not read at one moment, so parents may form a loop
			c, ok := owners[pid]
			if !ok {
				c, ok = known[pid]
			}
			if ok {
				owner = c
				break
			}
			next, ok := parents[pid]
			if !ok || pid <= 1 {
				break
			}
			path = append(path, pid)
			pid = next
		}
		for _, pid := range path {
			known[pid] = owner
		}
		return owner
	}
}

// cgroupUsage replaces sums over processes with the counts of the kernel.
func cgroupUsage(cg supervise.Cgroup, u *usage) {
	if dir := cg.V1["cpuacct"]; dir != "" {
		if ns, ok := readNumber(filepath.Join(dir, "cpuacct.usage")); ok {
			u.cpu = time.Duration(ns)
		}
	} else if cg.V2 != "" {
		if us := supervise.ReadKeyed(filepath.Join(cg.V2, "cpu.stat"), "usage_usec"); us > 0 {
			u.cpu = time.Duration(us) * time.Microsecond
		}
	}
	if dir := cg.V1["memory"]; dir != "" {
		if used, ok := readNumber(filepath.Join(dir, "memory.usage_in_bytes")); ok {
			stat := filepath.Join(dir, "memory.stat")
			u.workingSet = used - min(used, supervise.ReadKeyed(stat, "total_inactive_file"))
			u.rss = supervise.ReadKeyed(stat, "total_rss")
		}
	} else if cg.V2 != "" {
		if used, ok := readNumber(filepath.Join(cg.V2, "memory.current")); ok {
			stat := filepath.Join(cg.V2, "memory.stat")
			u.workingSet = used - min(used, supervise.ReadKeyed(stat, "inactive_file"))
			u.rss = supervise.ReadKeyed(stat, "anon")
		}
	}
}

func readNumber(path string) (uint64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return n, err == nil
}

// minCPUSample is the minimum time over which a rate is computed.
const minCPUSample = 100 * time.Millisecond

// nanoCores returns the CPU rate since the last sample, and takes a new sample. It returns
// nil if there is no rate yet.
func (c *container) nanoCores(u *usage) *criv1.UInt64Value {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.cpu
	took := u.at.Sub(last.at)
	if last.at.IsZero() {
		c.cpu = cpuSample{u.at, u.cpu}
		return nil
	}
	if took < minCPUSample {
		return nil
	}
	c.cpu = cpuSample{u.at, u.cpu}
	return value(uint64(float64(max(0, u.cpu-last.cpu)) / took.Seconds()))
}

func value(n uint64) *criv1.UInt64Value { return &criv1.UInt64Value{Value: n} }

func (s *Server) statsOf(c *container, u *usage) *criv1.ContainerStats {
	config, at := c.rec.Config, u.at.UnixNano()
	st := &criv1.ContainerStats{
		Attributes: &criv1.ContainerAttributes{Id: c.rec.ID, Metadata: config.GetMetadata(), Labels: config.GetLabels(),
			Annotations: config.GetAnnotations()},
		Cpu: &criv1.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: value(uint64(u.cpu)),
			UsageNanoCores: c.nanoCores(u)},
		Memory: memoryOf(u),
		// A container writes to the host's file systems, where its usage is not counted.
		WritableLayer: &criv1.FilesystemUsage{Timestamp: at, FsId: &criv1.FilesystemIdentifier{Mountpoint: s.opts.Dir},
			UsedBytes: value(0), InodesUsed: value(0)},
	}
	return st
}

func memoryOf(u *usage) *criv1.MemoryUsage {
	m := &criv1.MemoryUsage{
		Timestamp: u.at.UnixNano(), WorkingSetBytes: value(u.workingSet), RssBytes: value(u.rss),
		UsageBytes: value(max(u.rss, u.workingSet)),
		PageFaults: value(u.minorFaults + u.majorFaults), MajorPageFaults: value(u.majorFaults),
	}
	if u.memoryLimit > 0 {
		m.AvailableBytes = value(u.memoryLimit - min(u.memoryLimit, u.workingSet))
	}
	return m
}

// ContainerStats implements CRI.
func (s *runtimeService) ContainerStats(_ context.Context,
	req *criv1.ContainerStatsRequest) (*criv1.ContainerStatsResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	used, err := measure([]*container{c})
	if err != nil {
		return nil, status.Errorf(codes.Internal, "reading /proc: %v", err)
	}
	return &criv1.ContainerStatsResponse{Stats: s.statsOf(c, used[c])}, nil
}

// ListContainerStats implements CRI.
func (s *runtimeService) ListContainerStats(_ context.Context,
	req *criv1.ListContainerStatsRequest) (*criv1.ListContainerStatsResponse, error) {
	f := req.GetFilter()
	stats, err := s.containerStats(func(c *container) bool {
		return strings.HasPrefix(c.rec.ID, f.GetId()) && strings.HasPrefix(c.rec.SandboxID, f.GetPodSandboxId()) &&
			selects(f.GetLabelSelector(), c.rec.Config.GetLabels())
	})
	if err != nil {
		return nil, err
	}
	resp := &criv1.ListContainerStatsResponse{}
	for _, st := range stats {
		resp.Stats = append(resp.Stats, st.stats)
	}
	return resp, nil
}

type containerUsage struct {
	container *container
	used      *usage
	stats     *criv1.ContainerStats
}

func (s *Server) containerStats(want func(*container) bool) ([]containerUsage, error) {
	var chosen []*container
	s.mu.Lock()
	for _, c := range s.containers {
		if want(c) {
			chosen = append(chosen, c)
		}
	}
	s.mu.Unlock()
	used, err := measure(chosen)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "reading /proc: %v", err)
	}
	var out []containerUsage
	for _, c := range chosen {
		out = append(out, containerUsage{c, used[c], s.statsOf(c, used[c])})
	}
	return out, nil
}

// PodSandboxStats implements CRI. It returns the sum of the containers, without a network.
func (s *runtimeService) PodSandboxStats(_ context.Context,
	req *criv1.PodSandboxStatsRequest) (*criv1.PodSandboxStatsResponse, error) {
	b, err := s.sandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	all, err := s.podStats([]*sandbox{b})
	if err != nil {
		return nil, err
	}
	return &criv1.PodSandboxStatsResponse{Stats: all[0]}, nil
}

// ListPodSandboxStats implements CRI.
func (s *runtimeService) ListPodSandboxStats(_ context.Context,
	req *criv1.ListPodSandboxStatsRequest) (*criv1.ListPodSandboxStatsResponse, error) {
	f := req.GetFilter()
	var chosen []*sandbox
	s.mu.Lock()
	for _, b := range s.sandboxes {
		if strings.HasPrefix(b.rec.ID, f.GetId()) && selects(f.GetLabelSelector(), b.rec.Config.GetLabels()) {
			chosen = append(chosen, b)
		}
	}
	s.mu.Unlock()
	all, err := s.podStats(chosen)
	if err != nil {
		return nil, err
	}
	return &criv1.ListPodSandboxStatsResponse{Stats: all}, nil
}

func (s *Server) podStats(chosen []*sandbox) ([]*criv1.PodSandboxStats, error) {
	wanted := map[string][]containerUsage{} // by the ID of the sandbox
	for _, b := range chosen {
		wanted[b.rec.ID] = nil
	}
	stats, err := s.containerStats(func(c *container) bool {
		_, is := wanted[c.rec.SandboxID]
		return is
	})
	if err != nil {
		return nil, err
	}
	for _, st := range stats {
		id := st.container.rec.SandboxID
		wanted[id] = append(wanted[id], st)
	}
	now := time.Now()
	var out []*criv1.PodSandboxStats
	for _, b := range chosen {
		config, sum := b.rec.Config, &usage{at: now}
		linux := &criv1.LinuxPodSandboxStats{}
		var cores uint64
		rated := false
		for _, st := range wanted[b.rec.ID] {
			linux.Containers = append(linux.Containers, st.stats)
			sum.cpu += st.used.cpu
			sum.rss += st.used.rss
			sum.workingSet += st.used.workingSet
			sum.minorFaults += st.used.minorFaults
			sum.majorFaults += st.used.majorFaults
			sum.processes += st.used.processes
			if n := st.stats.GetCpu().GetUsageNanoCores(); n != nil {
				cores, rated = cores+n.GetValue(), true
			}
		}
		cgroupUsage(b.rec.Cgroup, sum) // of containers that were removed, too
		linux.Cpu = &criv1.CpuUsage{Timestamp: now.UnixNano(), UsageCoreNanoSeconds: value(uint64(sum.cpu))}
		if rated {
			linux.Cpu.UsageNanoCores = value(cores)
		}
		linux.Memory = memoryOf(sum)
		linux.Process = &criv1.ProcessUsage{Timestamp: now.UnixNano(), ProcessCount: value(sum.processes)}
		out = append(out, &criv1.PodSandboxStats{
			Attributes: &criv1.PodSandboxAttributes{Id: b.rec.ID, Metadata: config.GetMetadata(),
				Labels: config.GetLabels(), Annotations: config.GetAnnotations()},
			Linux: linux,
		})
	}
	return out, nil
}
