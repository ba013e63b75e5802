package fake

import (
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing/fstest"

	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

// Machine is the shape of a machine: all of its memory nodes are alike. Each node is a socket, whose CPUs share the
// last-level cache. As Linux does on most machines with more than one thread, the first threads of all cores have the
// lowest IDs. The zero value has one CPU.
type Machine struct {
	// Nodes is the number of memory nodes, Cores that of the cores of each node, and Threads that of the CPUs of each
	// core. 0 means 1.
	Nodes, Cores, Threads int
	// Memory is that of each node in bytes, with its huge pages. 0 means 1 GiB.
	Memory uint64
	// HugePages are the numbers of huge pages of each node, by their size in bytes. Sizes are multiples of 1 KiB.
	HugePages map[uint64]uint64
}

func (m Machine) withDefaults() Machine {
	m.Nodes, m.Cores, m.Threads = max(m.Nodes, 1), max(m.Cores, 1), max(m.Threads, 1)
	if m.Memory == 0 {
		m.Memory = 1 << 30
	}
	return m
}

// Numa returns the machine as numa.Read does.
func (m Machine) Numa() (out numa.Machine) {
	m = m.withDefaults()
	cores := m.Nodes * m.Cores
	for id := range cores * m.Threads {
		core := id % cores
		node := core / m.Cores
		out.CPUs = append(out.CPUs, numa.CPU{ID: id, Core: core, Socket: node * m.Cores, UncoreCache: node * m.Cores,
			Node: node})
	}
	for id := range m.Nodes {
		n := numa.Node{ID: id, Memory: m.Memory, HugePages: maps.Clone(m.HugePages)}
		for other := range m.Nodes {
			n.Distances = append(n.Distances, distance(id, other))
		}
		out.Nodes = append(out.Nodes, n)
	}
	return out
}

// distance is that of Linux, unless the firmware reports another one.
func distance(from, to int) int {
	if from == to {
		return 10
	}
	return 20
}

// FS returns the files of the kernel that numa.Read reads.
func (m Machine) FS() fs.FS {
	m = m.withDefaults()
	files := fstest.MapFS{}
	set := func(content, path string, args ...any) {
		files["sys/devices/system/"+fmt.Sprintf(path, args...)] = &fstest.MapFile{Data: []byte(content + "\n"),
			Mode: 0o444}
	}
	machine := m.Numa()
	list := func(of func(numa.CPU) bool) string {
		var ids []int
		for _, c := range machine.CPUs {
			if of(c) {
				ids = append(ids, c.ID)
			}
		}
		return cpuset.New(ids...).String()
	}
	set(list(func(numa.CPU) bool { return true }), "cpu/online")
	for _, c := range machine.CPUs {
		ofNode := list(func(o numa.CPU) bool { return o.Node == c.Node })
		set(fmt.Sprint(c.Node), "cpu/cpu%d/topology/physical_package_id", c.ID)
		set(list(func(o numa.CPU) bool { return o.Core == c.Core }), "cpu/cpu%d/topology/thread_siblings_list", c.ID)
		set("3", "cpu/cpu%d/cache/index3/level", c.ID)
		set(ofNode, "cpu/cpu%d/cache/index3/shared_cpu_list", c.ID)
	}
	for _, n := range machine.Nodes {
		set(list(func(c numa.CPU) bool { return c.Node == n.ID }), "node/node%d/cpulist", n.ID)
		set(fmt.Sprintf("Node %d MemTotal: %d kB", n.ID, n.Memory>>10), "node/node%d/meminfo", n.ID)
		set(strings.Trim(fmt.Sprint(n.Distances), "[]"), "node/node%d/distance", n.ID)
		for size, count := range n.HugePages {
			set(fmt.Sprint(count), "node/node%d/hugepages/hugepages-%dkB/nr_hugepages", n.ID, size>>10)
		}
	}
	return files
}
