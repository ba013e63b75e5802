package numa

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Directories of the kernel (Documentation/admin-guide/cputopology.rst, Documentation/ABI/stable/sysfs-devices-node).
const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
)

// Read returns the machine that the files describe, such as os.DirFS("/"). It reads /sys, and /proc/meminfo on a kernel
// without NUMA. It fails if the CPUs cannot be read, also on other operating systems than Linux.
//
// Nodes with IDs from [MaxNodes] on are left out if they have no CPUs, as those of GPUs; otherwise they are an error. A
// CPU without a node, as if the node is offline, belongs to the first one.
func Read(root fs.FS) (Machine, error) {
	m, err := readCPUs(root)
	if err == nil {
		err = m.readNodes(root)
	}
	if err != nil {
		return Machine{}, fmt.Errorf("numa: reading the CPUs and memory nodes: %w", err)
	}
	return m, nil
}

// Online returns the CPUs that are online now, by the files such as os.DirFS("/").
func Online(root fs.FS) (cpuset.CPUSet, error) {
	online, err := readList(root, cpuDir+"/online")
	if err != nil {
		return online, fmt.Errorf("numa: reading which CPUs are online: %w", err)
	}
	return online, nil
}

func readCPUs(root fs.FS) (m Machine, err error) {
	online, err := readList(root, cpuDir+"/online")
	if err != nil {
		return m, err
	}
	sockets := map[string]int{} // the lowest CPU, by the ID of the package
	for _, id := range online.List() {
		dir := fmt.Sprintf("%s/cpu%d", cpuDir, id)
		c := CPU{ID: id}
		pkg, err := readLine(root, dir+"/topology/physical_package_id")
		if err != nil {
			return m, err
		}
		if _, ok := sockets[pkg]; !ok {
			sockets[pkg] = id
		}
		c.Socket = sockets[pkg]
		threads, err := readList(root, dir+"/topology/thread_siblings_list")
		if err != nil {
			return m, err
		}
		c.Core = lowest(threads.Intersection(online), id)
		if c.UncoreCache, err = lastCache(root, dir+"/cache", online, c); err != nil {
			return m, err
		}
		m.CPUs = append(m.CPUs, c)
	}
	if len(m.CPUs) == 0 {
		return m, errors.New("no CPU is online")
	}
	return m, nil
}

// lastCache returns the lowest CPU that shares the cache of level 3 or higher with the CPU, or its socket if there is
// none (as kubelet).
func lastCache(root fs.FS, dir string, online cpuset.CPUSet, c CPU) (int, error) {
	const uncore = 3 // lower levels are those of a core
	found, level := c.Socket, uncore-1
	entries, err := fs.ReadDir(root, dir)
	if errors.Is(err, fs.ErrNotExist) { // as in virtual machines
		return found, nil
	} else if err != nil {
		return 0, err
	}
	for _, e := range entries {
		text, err := readLine(root, path.Join(dir, e.Name(), "level"))
		if n, convErr := strconv.Atoi(text); err != nil || convErr != nil || n <= level {
			continue // no cache, or a nearer one
		} else if shared, err := readList(root, path.Join(dir, e.Name(), "shared_cpu_list")); err == nil {
			found, level = lowest(shared.Intersection(online), c.ID), n
		}
	}
	return found, nil
}

func (m *Machine) readNodes(root fs.FS) error {
	entries, err := fs.ReadDir(root, nodeDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var ids []int
	for _, e := range entries {
		if number, ok := strings.CutPrefix(e.Name(), "node"); ok {
			if id, err := strconv.Atoi(number); err == nil && id >= 0 {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	nodeOf := map[int]int{} // by the IDs of the CPUs
	var columns []int
	for i, id := range ids {
		dir := fmt.Sprintf("%s/node%d", nodeDir, id)
		cpus, err := readList(root, dir+"/cpulist")
		if err != nil {
			return err
		}
		if id >= MaxNodes {
			if !cpus.IsEmpty() {
				return fmt.Errorf("node %d has CPUs, and only IDs below %d are supported", id, MaxNodes)
			}
			continue
		}
		for _, cpu := range cpus.UnsortedList() {
			nodeOf[cpu] = id
		}
		n := Node{ID: id}
		if n.Memory, err = readMemory(root, dir+"/meminfo"); err != nil {
			return err
		}
		if n.HugePages, err = readHugePages(root, dir+"/hugepages"); err != nil {
			return err
		}
		n.Distances = readDistances(root, dir+"/distance")
		columns = append(columns, i)
		m.Nodes = append(m.Nodes, n)
	}
	for i := range m.Nodes {
		m.Nodes[i].Distances = known(m.Nodes[i].Distances, len(ids), columns)
	}
	if len(m.Nodes) == 0 { // a kernel without NUMA
		n := Node{Distances: []int{10}}
		if n.Memory, err = readMemory(root, "proc/meminfo"); err != nil {
			return err
		}
		if n.HugePages, err = readHugePages(root, "sys/kernel/mm/hugepages"); err != nil {
			return err
		}
		m.Nodes = []Node{n}
	}
	for i := range m.CPUs {
		node, ok := nodeOf[m.CPUs[i].ID]
		if !ok {
			node = m.Nodes[0].ID
		}
		m.CPUs[i].Node = node
	}
	return nil
}

// known returns the distances to the nodes that are not left out, which have these columns. If the kernel reports
// another number of nodes, it returns nil: it is not known which they are.
func known(all []int, nodes int, columns []int) (out []int) {
	if len(all) != nodes {
		return nil
	}
	for _, i := range columns {
		out = append(out, all[i])
	}
	return out
}

// readMemory returns the bytes of all memory, of a file such as meminfo of a node or of the machine.
func readMemory(root fs.FS, file string) (uint64, error) {
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		_, rest, ok := strings.Cut(line, "MemTotal:")
		if !ok {
			continue
		}
		kB, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 54)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		return kB * 1024, nil
	}
	return 0, fmt.Errorf("%s has no MemTotal", file)
}

func readHugePages(root fs.FS, dir string) (map[uint64]uint64, error) {
	entries, err := fs.ReadDir(root, dir)
	if errors.Is(err, fs.ErrNotExist) { // the kernel has no huge pages
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	pages := map[uint64]uint64{}
	for _, e := range entries {
		size, ok := strings.CutPrefix(e.Name(), "hugepages-")
		kB, err := strconv.ParseUint(strings.TrimSuffix(size, "kB"), 10, 54)
		if !ok || err != nil {
			continue
		}
		text, err := readLine(root, path.Join(dir, e.Name(), "nr_hugepages"))
		if err != nil {
			return nil, err
		}
		if pages[kB*1024], err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, fmt.Errorf("%s: %w", path.Join(dir, e.Name()), err)
		}
	}
	return pages, nil
}

// readDistances returns nil if they cannot be read: only an option of a policy needs them.
func readDistances(root fs.FS, file string) (out []int) {
	line, err := readLine(root, file)
	if err != nil {
		return nil
	}
	for _, field := range strings.Fields(line) {
		d, err := strconv.Atoi(field)
		if err != nil {
			return nil
		}
		out = append(out, d)
	}
	return out
}

func readLine(root fs.FS, file string) (string, error) {
	data, err := fs.ReadFile(root, file)
	return strings.TrimSpace(string(data)), err
}

func readList(root fs.FS, file string) (cpuset.CPUSet, error) {
	line, err := readLine(root, file)
	if err != nil {
		return cpuset.New(), err
	}
	set, err := cpuset.Parse(line)
	if err != nil {
		return set, fmt.Errorf("%s: %w", file, err)
	}
	return set, nil
}

// lowest returns the lowest ID of the set, or the other ID if the set is empty.
func lowest(set cpuset.CPUSet, other int) int {
	if set.IsEmpty() {
		return other
	}
	return slices.Min(set.UnsortedList())
}
