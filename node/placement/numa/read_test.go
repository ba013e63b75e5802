package numa_test

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/node/internal/machines"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

// groups returns the CPUs by what of keeps apart, in the order of the lowest CPU.
func groups(m numa.Machine, of func(numa.CPU) int) (out []string) {
	sets := map[int][]int{}
	var order []int
	for _, c := range m.CPUs {
		if sets[of(c)] == nil {
			order = append(order, of(c))
		}
		sets[of(c)] = append(sets[of(c)], c.ID)
	}
	for _, id := range order {
		out = append(out, cpuset.New(sets[id]...).String())
	}
	return out
}

func TestOnline(t *testing.T) {
	online, err := numa.Online(fstest.MapFS{"sys/devices/system/cpu/online": &fstest.MapFile{Data: []byte("0-3,6\n")}})
	require.NoError(t, err)
	assert.Equal(t, "0-3,6", online.String())
	_, err = numa.Online(fstest.MapFS{})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestReadMachines(t *testing.T) {
	for name, want := range map[string]struct {
		cpus, cores    int
		nodes, sockets []string
		caches         int
		ids            string
	}{
		"xeon-2n":       {16, 16, []string{"0-7", "8-15"}, []string{"0-7", "8-15"}, 2, "0-1"},
		"xeon-smt-2n":   {32, 16, []string{"0-7,16-23", "8-15,24-31"}, []string{"0-7,16-23", "8-15,24-31"}, 2, "0-1"},
		"xeon-4n":       {40, 40, []string{"0,4,8,12,16,20,24,28,32,36", "1,5,9,13,17,21,25,29,33,37", "2,6,10,14,18,22,26,30,34,38", "3,7,11,15,19,23,27,31,35,39"}, nil, 4, "0-3"},
		"arm-4n":        {128, 128, []string{"0-31", "32-63", "64-95", "96-127"}, []string{"0-63", "64-127"}, 4, "0-3"},
		"opteron-8n":    {64, 32, nil, []string{"0-15", "16-31", "32-47", "48-63"}, 8, "0-7"},
		"opteron865-8n": {16, 16, nil, nil, 8, "0-7"},
		"power-gpu":     {32, 8, []string{"0-15", "88-103"}, []string{"0-15", "88-103"}, 4, "0,8"},
		"epyc-1n":       {64, 32, []string{"0-63"}, []string{"0-63"}, 8, "0"},
		"offline":       {17, 17, []string{"4-20"}, []string{"4,6,8,10,12,14,16,18,20", "5,7,9,11,13,15,17,19"}, 2, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			m := machines.Read(t, name)
			assert.Len(t, m.CPUs, want.cpus)
			assert.Len(t, groups(m, func(c numa.CPU) int { return c.Core }), want.cores)
			assert.Len(t, groups(m, func(c numa.CPU) int { return c.UncoreCache }), want.caches)
			if want.nodes != nil {
				assert.Equal(t, want.nodes, groups(m, func(c numa.CPU) int { return c.Node }))
			}
			if want.sockets != nil {
				assert.Equal(t, want.sockets, groups(m, func(c numa.CPU) int { return c.Socket }))
			}
			var ids []int
			for _, n := range m.Nodes {
				ids = append(ids, n.ID)
				assert.Positive(t, n.Memory)
				if n.Distances != nil {
					assert.Len(t, n.Distances, len(m.Nodes))
				}
			}
			assert.Equal(t, want.ids, numa.Of(ids...).String())
		})
	}
}

func TestReadNodes(t *testing.T) {
	n := machines.Read(t, "xeon-smt-2n").Nodes[1]
	assert.Equal(t, numa.Node{ID: 1, Memory: 49519964 << 10, HugePages: map[uint64]uint64{2 << 20: 2048, 1 << 30: 0},
		Distances: []int{21, 10}}, n)
	gpu := machines.Read(t, "power-gpu")
	assert.Equal(t, []int{40, 10}, gpu.Nodes[1].Distances, "nodes of GPUs are left out")
	assert.Nil(t, machines.Read(t, "offline").Nodes[0].Distances, "the kernel reports two for one node")
}

func TestReadFails(t *testing.T) {
	_, err := numa.Read(fstest.MapFS{})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = numa.Read(machines.FS(t, "sparse-8n"))
	require.ErrorContains(t, err, "node 72 has CPUs, and only IDs below 64 are supported")

	for file, content := range map[string]string{
		"sys/devices/system/cpu/online":         "0-x",
		"sys/devices/system/node/node0/cpulist": "many",
		"sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: lots kB",
		"sys/devices/system/node/node1/meminfo": "",
	} {
		tree := machines.FS(t, "xeon-2n")
		tree[file] = &fstest.MapFile{Data: []byte(content)}
		_, err := numa.Read(tree)
		assert.ErrorContains(t, err, "numa: reading the CPUs", file)
	}
}

// A kernel without NUMA has no directory of nodes.
func TestReadWithoutNodes(t *testing.T) {
	tree := machines.FS(t, "epyc-1n")
	for file := range tree {
		if len(file) > 24 && file[:24] == "sys/devices/system/node/" {
			delete(tree, file)
		}
	}
	tree["proc/meminfo"] = &fstest.MapFile{Data: []byte("MemTotal:       1024 kB\n")}
	tree["sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"] = &fstest.MapFile{Data: []byte("3\n")}
	m, err := numa.Read(tree)
	require.NoError(t, err)
	assert.Equal(t, []numa.Node{{Memory: 1 << 20, HugePages: map[uint64]uint64{2 << 20: 3}, Distances: []int{10}}},
		m.Nodes)
	assert.Equal(t, []string{"0-63"}, groups(m, func(c numa.CPU) int { return c.Node }))
}

// The machine of the test.
func TestReadThisMachine(t *testing.T) {
	m, err := numa.Read(os.DirFS("/"))
	if runtime.GOOS != "linux" {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	assert.NotEmpty(t, m.CPUs)
	assert.NotEmpty(t, m.Nodes)
	assert.True(t, slices.IsSortedFunc(m.CPUs, func(a, b numa.CPU) int { return a.ID - b.ID }))
}

func ExampleRead() {
	machine, err := numa.Read(os.DirFS("/"))
	if err != nil { // on other operating systems than Linux
		machine = numa.Machine{CPUs: []numa.CPU{{}}, Nodes: []numa.Node{{}}}
	}
	fmt.Println(len(machine.CPUs) > 0, len(machine.Nodes) > 0)
	// Output: true true
}
