package process

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// defaultCPUPeriod is the kernel's, in microseconds (Documentation/scheduler/sched-bwc.rst).
const defaultCPUPeriod = 100_000

// limit is a limit of a container with the settings that enforce it. All settings of one
// cgroup version are enough.
type limit struct {
	// kind is the name of the limit in a warning.
	kind string
	// optional means that a limit without a cgroup is not a shortfall.
	optional bool
	settings []setting
}

// setting is the content of a file of a cgroup.
type setting struct {
	// controller is the controller of version 1 in whose hierarchy the file is. For version
	// 2 it is "".
	controller  string
	file, value string
}

// limitsOf returns the limits in the resources, in the order in which they are written. A
// value of 0 is not a limit, and a negative one removes the limit. pids is the limit of
// processes if the resources have none; 0 means no limit.
func limitsOf(r *criv1.LinuxContainerResources, pids int64) []limit {
	var all []limit
	add := func(l limit, settings ...setting) {
		l.settings = settings
		all = append(all, l)
	}
	if shares := r.GetCpuShares(); shares > 0 {
		// Without a weight, a container has the share of any process of the host, which does
		// not need a warning.
		shares = min(max(shares, 2), 262144)
		add(limit{kind: "the CPU weight", optional: true},
			setting{"cpu", "cpu.shares", number(shares)},
			setting{"", "cpu.weight", number(cpuWeight(shares))})
	}
	if quota := r.GetCpuQuota(); quota != 0 {
		period := r.GetCpuPeriod()
		if period <= 0 {
			period = defaultCPUPeriod
		}
		v1, v2 := unlimited(quota)
		add(limit{kind: "the CPU limit", optional: quota < 0},
			setting{"cpu", "cpu.cfs_period_us", number(period)},
			setting{"cpu", "cpu.cfs_quota_us", v1},
			setting{"", "cpu.max", v2 + " " + number(period)})
	}
	memory := r.GetMemoryLimitInBytes()
	if memory != 0 {
		v1, v2 := unlimited(memory)
		add(limit{kind: "the memory limit", optional: memory < 0},
			setting{"memory", "memory.limit_in_bytes", v1},
			setting{"", "memory.max", v2})
	}
	if swap := r.GetMemorySwapLimitInBytes(); swap != 0 {
		v1, v2 := unlimited(swap)
		if swap > 0 && memory > 0 { // CRI has the sum of the two, as version 1
			v2 = number(max(swap-memory, 0))
		}
		add(limit{kind: "the limit of swap", optional: swap < 0},
			setting{"memory", "memory.memsw.limit_in_bytes", v1},
			setting{"", "memory.swap.max", v2})
	}
	unified := maps.Clone(r.GetUnified())
	if text, ok := unified["pids.max"]; ok {
		delete(unified, "pids.max")
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			pids = n
		} else if text == "max" {
			pids = -1
		}
	}
	if pids != 0 {
		_, v2 := unlimited(pids) // this file takes "max" in both versions
		add(limit{kind: "the limit of processes", optional: pids < 0},
			setting{"pids", "pids.max", v2}, setting{"", "pids.max", v2})
	}
	for _, file := range slices.Sorted(maps.Keys(unified)) {
		if filepath.IsLocal(file) && !strings.Contains(file, "/") {
			add(limit{kind: "the setting " + file}, setting{"", file, unified[file]})
		}
	}
	if cpus := r.GetCpusetCpus(); cpus != "" {
		add(limit{kind: "the set of CPUs"}, setting{"", "cpuset.cpus", cpus})
	}
	if mems := r.GetCpusetMems(); mems != "" {
		add(limit{kind: "the set of memory nodes"}, setting{"", "cpuset.mems", mems})
	}
	return all
}

// unlimited formats a limit for files of version 1 and of version 2. A negative limit is
// none.
func unlimited(n int64) (v1, v2 string) {
	if n < 0 {
		return "-1", "max"
	}
	return number(n), number(n)
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// cpuWeight converts a weight of version 1, [2, 262144], to one of version 2, [1, 10000],
// with the formula of KEP-2254.
func cpuWeight(shares int64) int64 { return 1 + (shares-2)*9999/262142 }

// mergeResources returns old with the fields that are set in update.
func mergeResources(old, update *criv1.LinuxContainerResources) *criv1.LinuxContainerResources {
	r := &criv1.LinuxContainerResources{
		CpuPeriod: old.GetCpuPeriod(), CpuQuota: old.GetCpuQuota(), CpuShares: old.GetCpuShares(),
		MemoryLimitInBytes: old.GetMemoryLimitInBytes(), OomScoreAdj: old.GetOomScoreAdj(),
		CpusetCpus: old.GetCpusetCpus(), CpusetMems: old.GetCpusetMems(), HugepageLimits: old.GetHugepageLimits(),
		Unified: old.GetUnified(), MemorySwapLimitInBytes: old.GetMemorySwapLimitInBytes(),
	}
	take := func(to *int64, from int64) {
		if from != 0 {
			*to = from
		}
	}
	take(&r.CpuPeriod, update.GetCpuPeriod())
	take(&r.CpuQuota, update.GetCpuQuota())
	take(&r.CpuShares, update.GetCpuShares())
	take(&r.MemoryLimitInBytes, update.GetMemoryLimitInBytes())
	take(&r.MemorySwapLimitInBytes, update.GetMemorySwapLimitInBytes())
	if v := update.GetCpusetCpus(); v != "" {
		r.CpusetCpus = v
	}
	if v := update.GetCpusetMems(); v != "" {
		r.CpusetMems = v
	}
	if more := update.GetUnified(); len(more) > 0 {
		r.Unified = maps.Clone(old.GetUnified())
		if r.Unified == nil {
			r.Unified = map[string]string{}
		}
		maps.Copy(r.Unified, more)
	}
	return r
}
