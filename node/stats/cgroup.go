package stats

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// CgroupUsage is what the kernel counts for a cgroup. A nil field is unknown: each controller
// may be missing, and a file may vanish with its cgroup while it is read.
type CgroupUsage struct {
	// CPU, UserCPU and SystemCPU are CPU times since the cgroup was made, in nanoseconds.
	CPU, UserCPU, SystemCPU *uint64
	// Periods are the enforcement periods of the CPU limit, and ThrottledPeriods those in which
	// the cgroup was throttled, for Throttled nanoseconds.
	Periods, ThrottledPeriods, Throttled *uint64
	// Memory is all memory, and WorkingSet that without inactive files, in bytes.
	Memory, WorkingSet, RSS, Cache, MappedFile, Swap *uint64
	// MemoryLimit and SwapLimit are in bytes, nil if there is none. SwapLimit is there with cgroup v2.
	MemoryLimit, SwapLimit  *uint64
	PageFaults, MajorFaults *uint64
	// Tasks is the number of processes and threads.
	Tasks *uint64
	// ReadBytes, WrittenBytes, Reads and Writes are sums over all devices.
	ReadBytes, WrittenBytes, Reads, Writes *uint64
	// CPUPressure, MemoryPressure and IOPressure are there with cgroup v2.
	CPUPressure, MemoryPressure, IOPressure *statsv1alpha1.PSIStats
}

// noLimit is from where on a limit of cgroup v1 means that there is none: it is a multiple of
// the page size just below 2^63.
const noLimit = 1 << 62

// readFile returns the content of a file of a controller; "" if it cannot be read.
type readFile func(controller, name string) string

// readV1 reads a cgroup of version 1.
func readV1(file readFile) CgroupUsage {
	var u CgroupUsage
	u.CPU = numberIn(file("cpuacct", "cpuacct.usage"))
	split := parseKeyed(file("cpuacct", "cpuacct.stat"))
	u.UserCPU, u.SystemCPU = times(split, "user", uint64(time.Second)/userHZ),
		times(split, "system", uint64(time.Second)/userHZ)
	throttling := parseKeyed(file("cpu", "cpu.stat"))
	u.Periods, u.ThrottledPeriods, u.Throttled = keyed(throttling, "nr_periods"), keyed(throttling, "nr_throttled"),
		keyed(throttling, "throttled_time")
	u.Memory = numberIn(file("memory", "memory.usage_in_bytes"))
	m := parseKeyed(file("memory", "memory.stat"))
	u.RSS, u.Cache, u.MappedFile = keyed(m, "total_rss"), keyed(m, "total_cache"), keyed(m, "total_mapped_file")
	u.PageFaults, u.MajorFaults, u.Swap = keyed(m, "total_pgfault"), keyed(m, "total_pgmajfault"),
		keyed(m, "total_swap")
	u.WorkingSet = less(u.Memory, m["total_inactive_file"])
	// Its own limit, as for cAdvisor and with cgroup v2, and not the one of all pods.
	if limit := numberIn(file("memory", "memory.limit_in_bytes")); limit != nil && *limit < noLimit {
		u.MemoryLimit = limit
	}
	u.Tasks = numberIn(file("pids", "pids.current"))
	u.ReadBytes, u.WrittenBytes = parseBlkio(file("blkio", "blkio.throttle.io_service_bytes"))
	u.Reads, u.Writes = parseBlkio(file("blkio", "blkio.throttle.io_serviced"))
	return u
}

// readV2 reads a cgroup of version 2, where all controllers have one directory.
func readV2(file readFile) CgroupUsage {
	var u CgroupUsage
	c := parseKeyed(file("", "cpu.stat"))
	const us = uint64(time.Microsecond)
	u.CPU, u.UserCPU, u.SystemCPU = times(c, "usage_usec", us), times(c, "user_usec", us), times(c, "system_usec", us)
	u.Periods, u.ThrottledPeriods, u.Throttled = keyed(c, "nr_periods"), keyed(c, "nr_throttled"),
		times(c, "throttled_usec", us)
	u.Memory = numberIn(file("", "memory.current"))
	m := parseKeyed(file("", "memory.stat"))
	u.RSS, u.Cache, u.MappedFile = keyed(m, "anon"), keyed(m, "file"), keyed(m, "file_mapped")
	u.PageFaults, u.MajorFaults = keyed(m, "pgfault"), keyed(m, "pgmajfault")
	u.WorkingSet = less(u.Memory, m["inactive_file"])
	u.MemoryLimit, u.Swap = numberIn(file("", "memory.max")), numberIn(file("", "memory.swap.current"))
	u.SwapLimit = numberIn(file("", "memory.swap.max"))
	u.Tasks = numberIn(file("", "pids.current"))
	u.ReadBytes, u.WrittenBytes, u.Reads, u.Writes = parseIOStat(file("", "io.stat"))
	u.CPUPressure, u.MemoryPressure, u.IOPressure = parsePressure(file("", "cpu.pressure")),
		parsePressure(file("", "memory.pressure")), parsePressure(file("", "io.pressure"))
	return u
}

func numberIn(text string) *uint64 {
	n, err := parseNumber(text)
	if err != nil {
		return nil
	}
	return &n
}

func keyed(m map[string]uint64, key string) *uint64 { return times(m, key, 1) }

// times returns the number of the key times the unit; nil if there is none, or if it does not
// fit.
func times(m map[string]uint64, key string, unit uint64) *uint64 {
	n, ok := m[key]
	if !ok || n > math.MaxUint64/unit {
		return nil
	}
	n *= unit
	return &n
}

// less returns a-b, at least 0; nil if a is nil.
func less(a *uint64, b uint64) *uint64 {
	if a == nil {
		return nil
	}
	n := *a - min(*a, b)
	return &n
}

// parseBlkio adds up the lines of a file of blkio, as in "8:0 Read 4096".
func parseBlkio(text string) (reads, writes *uint64) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		switch fields[1] {
		case "Read":
			reads = plus(reads, fields[2])
		case "Write":
			writes = plus(writes, fields[2])
		}
	}
	return reads, writes
}

// parseIOStat adds up the lines of io.stat, as in "8:0 rbytes=4096 wbytes=0 rios=1 wios=0".
func parseIOStat(text string) (readBytes, writtenBytes, reads, writes *uint64) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		for _, field := range fields[min(1, len(fields)):] {
			name, value, _ := strings.Cut(field, "=")
			switch name {
			case "rbytes":
				readBytes = plus(readBytes, value)
			case "wbytes":
				writtenBytes = plus(writtenBytes, value)
			case "rios":
				reads = plus(reads, value)
			case "wios":
				writes = plus(writes, value)
			}
		}
	}
	return readBytes, writtenBytes, reads, writes
}

// plus returns the sum; sum alone if the text is no number, or if it does not fit.
func plus(sum *uint64, text string) *uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || sum != nil && n > math.MaxUint64-*sum {
		return sum
	}
	if sum != nil {
		n += *sum
	}
	return &n
}

func (u *CgroupUsage) cpu(now time.Time) *statsv1alpha1.CPUStats {
	if u.CPU == nil {
		return nil
	}
	return &statsv1alpha1.CPUStats{Time: metav1.NewTime(now), UsageCoreNanoSeconds: u.CPU, PSI: u.CPUPressure}
}

func (u *CgroupUsage) memory(now time.Time) *statsv1alpha1.MemoryStats {
	if u.Memory == nil {
		return nil
	}
	m := &statsv1alpha1.MemoryStats{
		Time: metav1.NewTime(now), UsageBytes: u.Memory, WorkingSetBytes: u.WorkingSet, RSSBytes: u.RSS,
		PageFaults: u.PageFaults, MajorPageFaults: u.MajorFaults, PSI: u.MemoryPressure,
	}
	if u.MemoryLimit != nil {
		m.AvailableBytes = less(u.MemoryLimit, *u.WorkingSet)
	}
	return m
}

func (u *CgroupUsage) io(now time.Time) *statsv1alpha1.IOStats {
	if u.IOPressure == nil {
		return nil
	}
	return &statsv1alpha1.IOStats{Time: metav1.NewTime(now), PSI: u.IOPressure}
}

// cgroups reads cgroups below a mount point. The hierarchies of version 1 are in directories of
// the names of their controllers, or links of these names, as every distribution has them.
type cgroups struct{ mount string }

// unified reports whether all controllers are in one hierarchy of version 2.
func (g cgroups) unified() bool {
	_, err := os.Stat(filepath.Join(g.mount, "cgroup.controllers"))
	return err == nil
}

// read reads the cgroup at a path below the mount point. ok is false if there is none.
func (g cgroups) read(cgroup string) (u CgroupUsage, ok bool) {
	v2 := g.unified()
	file := func(controller, name string) string {
		data, err := os.ReadFile(filepath.Join(g.mount, controller, cgroup, name))
		if err != nil {
			return ""
		}
		return string(data)
	}
	if v2 {
		u = readV2(file)
	} else {
		u = readV1(file)
	}
	return u, u.CPU != nil || u.Memory != nil
}

// lister is the controller whose hierarchy lists cgroups.
func (g cgroups) lister() string {
	if g.unified() {
		return ""
	}
	return "memory"
}

// containers returns the paths of the cgroups of containers in the cgroup of a pod, by the ID
// of the container. The driver cgroupfs names them by the ID, and systemd by a prefix, the ID
// and ".scope".
func (g cgroups) containers(pod string) map[string]string {
	entries, err := os.ReadDir(filepath.Join(g.mount, g.lister(), pod))
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		id := e.Name()
		if scope, ok := strings.CutSuffix(id, ".scope"); ok {
			id = scope[strings.LastIndexByte(scope, '-')+1:]
		}
		out[id] = path.Join(pod, e.Name())
	}
	return out
}

// process returns a process in the cgroup; "" if there is none.
func (g cgroups) process(cgroup string) string {
	data, err := os.ReadFile(filepath.Join(g.mount, g.lister(), cgroup, "cgroup.procs"))
	if err != nil {
		return ""
	}
	pid, _, _ := strings.Cut(string(data), "\n")
	if _, err := strconv.ParseUint(pid, 10, 32); err != nil || pid == "0" {
		return ""
	}
	return pid
}
