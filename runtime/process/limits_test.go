package process

import (
	"testing"

	"github.com/stretchr/testify/assert"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestLimits(t *testing.T) {
	for name, test := range map[string]struct {
		resources *criv1.LinuxContainerResources
		pids      int64
		want      []limit
	}{
		"none":        {},
		"none either": {resources: &criv1.LinuxContainerResources{OomScoreAdj: 5, CpuPeriod: 100_000}},
		"CPU weight": {
			resources: &criv1.LinuxContainerResources{CpuShares: 1024},
			want: []limit{{"the CPU weight", true, []setting{
				{"cpu", "cpu.shares", "1024"}, {"", "cpu.weight", "39"},
			}}},
		},
		"least CPU weight": {
			resources: &criv1.LinuxContainerResources{CpuShares: 1},
			want: []limit{{"the CPU weight", true, []setting{{"cpu", "cpu.shares", "2"},
				{"", "cpu.weight", "1"}}}},
		},
		"most CPU weight": {
			resources: &criv1.LinuxContainerResources{CpuShares: 1 << 40},
			want: []limit{{"the CPU weight", true, []setting{{"cpu", "cpu.shares", "262144"},
				{"", "cpu.weight", "10000"}}}},
		},
		"CPU limit": {
			resources: &criv1.LinuxContainerResources{CpuQuota: 50_000, CpuPeriod: 200_000},
			want: []limit{{"the CPU limit", false, []setting{
				{"cpu", "cpu.cfs_period_us", "200000"}, {"cpu", "cpu.cfs_quota_us", "50000"}, {"", "cpu.max", "50000 200000"},
			}}},
		},
		"no CPU limit any more": {
			resources: &criv1.LinuxContainerResources{CpuQuota: -1},
			want: []limit{{"the CPU limit", true, []setting{
				{"cpu", "cpu.cfs_period_us", "100000"}, {"cpu", "cpu.cfs_quota_us", "-1"}, {"", "cpu.max", "max 100000"},
			}}},
		},
		"memory": {
			resources: &criv1.LinuxContainerResources{MemoryLimitInBytes: 1 << 30},
			want: []limit{{"the memory limit", false, []setting{
				{"memory", "memory.limit_in_bytes", "1073741824"}, {"", "memory.max", "1073741824"},
			}}},
		},
		"memory without swap": {
			resources: &criv1.LinuxContainerResources{MemoryLimitInBytes: 4096, MemorySwapLimitInBytes: 4096},
			want: []limit{
				{"the memory limit", false, []setting{{"memory", "memory.limit_in_bytes", "4096"}, {"", "memory.max", "4096"}}},
				{"the limit of swap", false, []setting{{"memory", "memory.memsw.limit_in_bytes", "4096"}, {"", "memory.swap.max", "0"}}},
			},
		},
		"no memory limit any more": {
			resources: &criv1.LinuxContainerResources{MemoryLimitInBytes: -1, MemorySwapLimitInBytes: -1},
			want: []limit{
				{"the memory limit", true, []setting{{"memory", "memory.limit_in_bytes", "-1"}, {"", "memory.max", "max"}}},
				{"the limit of swap", true, []setting{{"memory", "memory.memsw.limit_in_bytes", "-1"}, {"", "memory.swap.max", "max"}}},
			},
		},
		"processes": {
			pids: 200,
			want: []limit{{"the limit of processes", false, []setting{{"pids", "pids.max", "200"},
				{"", "pids.max", "200"}}}},
		},
		"own limit of processes": {
			resources: &criv1.LinuxContainerResources{Unified: map[string]string{"pids.max": "30"}}, pids: 200,
			want: []limit{{"the limit of processes", false, []setting{{"pids", "pids.max", "30"},
				{"", "pids.max", "30"}}}},
		},
		"as many processes as there can be": {
			resources: &criv1.LinuxContainerResources{Unified: map[string]string{"pids.max": "max"}}, pids: 200,
			want: []limit{{"the limit of processes", true, []setting{{"pids", "pids.max", "max"},
				{"", "pids.max", "max"}}}},
		},
		"files of version 2": {
			resources: &criv1.LinuxContainerResources{Unified: map[string]string{
				"memory.swap.max": "0", "memory.oom.group": "1", "../cgroup.procs": "1", "sub/memory.max": "1", "": "1",
			}},
			want: []limit{
				{"the setting memory.oom.group", false, []setting{{"", "memory.oom.group", "1"}}},
				{"the setting memory.swap.max", false, []setting{{"", "memory.swap.max", "0"}}},
			},
		},
		"CPUs": {
			resources: &criv1.LinuxContainerResources{CpusetCpus: "0-1,3", CpusetMems: "0"},
			want: []limit{
				{"the set of CPUs", false, []setting{{"", "cpuset.cpus", "0-1,3"}}},
				{"the set of memory nodes", false, []setting{{"", "cpuset.mems", "0"}}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, limitsOf(test.resources, test.pids))
		})
	}
}

func TestMergeResources(t *testing.T) {
	old := &criv1.LinuxContainerResources{
		CpuShares: 2, CpuQuota: 10_000, CpuPeriod: 100_000, MemoryLimitInBytes: 4096, OomScoreAdj: 7,
		CpusetCpus: "0", Unified: map[string]string{"a": "1", "b": "2"},
	}
	assert.Equal(t, old, mergeResources(old, nil))
	assert.Equal(t, &criv1.LinuxContainerResources{
		CpuShares: 2, CpuQuota: -1, CpuPeriod: 100_000, MemoryLimitInBytes: 8192, OomScoreAdj: 7,
		CpusetCpus: "0", CpusetMems: "1", Unified: map[string]string{"a": "1", "b": "3"},
	}, mergeResources(old, &criv1.LinuxContainerResources{
		CpuQuota: -1, MemoryLimitInBytes: 8192, OomScoreAdj: 9, CpusetMems: "1", Unified: map[string]string{"b": "3"},
	}))
	assert.Equal(t, map[string]string{"a": "1", "b": "2"}, old.Unified, "the old ones stay as they were")
	assert.Equal(t, map[string]string{"a": "1"},
		mergeResources(nil, &criv1.LinuxContainerResources{Unified: map[string]string{"a": "1"}}).Unified)
}
