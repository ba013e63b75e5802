// Package machines has descriptions of real machines, for tests. They were taken from the dumps of /sys in the tests of
// hwloc (tests/hwloc/linux), unless their first line says otherwise. A file has what [numa.Read] reads: lists of the
// CPUs that are online, and of those of each package, core and cache of level 3; and the nodes. Caches and cores with
// one CPU are left out.
package machines

import (
	"embed"
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

//go:embed testdata/*.txt
var files embed.FS

// Names returns the names of the machines.
func Names(t testing.TB) (names []string) {
	t.Helper()
	list, err := files.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		names = append(names, strings.TrimSuffix(f.Name(), ".txt"))
	}
	return names
}

// Read returns the machine, as [numa.Read] reads it.
func Read(t testing.TB, name string) numa.Machine {
	t.Helper()
	m, err := numa.Read(FS(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// FS returns the files of the machine.
func FS(t testing.TB, name string) fstest.MapFS {
	t.Helper()
	data, err := files.ReadFile("testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	tree := fstest.MapFS{}
	const system = "sys/devices/system/"
	write := func(file, content string) {
		tree[path.Join(system, file)] = &fstest.MapFile{Data: []byte(content + "\n")}
	}
	shared := func(file, list string) {
		for _, cpu := range parse(t, list) {
			write(fmt.Sprintf("cpu/cpu%d/%s", cpu, file), list)
		}
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "online":
			write("cpu/online", fields[1])
			for _, cpu := range parse(t, fields[1]) {
				write(fmt.Sprintf("cpu/cpu%d/topology/thread_siblings_list", cpu), fmt.Sprint(cpu))
				write(fmt.Sprintf("cpu/cpu%d/cache/index0/level", cpu), "1")
				write(fmt.Sprintf("cpu/cpu%d/cache/index0/shared_cpu_list", cpu), fmt.Sprint(cpu))
			}
		case "package":
			for _, cpu := range parse(t, fields[2]) {
				write(fmt.Sprintf("cpu/cpu%d/topology/physical_package_id", cpu), fields[1])
			}
		case "cores":
			for _, list := range fields[1:] {
				shared("topology/thread_siblings_list", list)
			}
		case "cache3":
			for _, list := range fields[1:] {
				shared("cache/index3/shared_cpu_list", list)
				for _, cpu := range parse(t, list) {
					write(fmt.Sprintf("cpu/cpu%d/cache/index3/level", cpu), "3")
				}
			}
		case "node":
			node := "node/node" + fields[1] + "/"
			for _, field := range fields[2:] {
				switch key, value, _ := strings.Cut(field, "="); key {
				case "cpus":
					write(node+"cpulist", value)
				case "kB":
					write(node+"meminfo", fmt.Sprintf("Node %s MemTotal:  %s kB\nNode %s MemFree:  1 kB",
						fields[1], value, fields[1]))
				case "distance":
					write(node+"distance", strings.ReplaceAll(value, ",", " "))
				default:
					write(node+"hugepages/hugepages-"+key+"/nr_hugepages", value)
				}
			}
		}
	}
	return tree
}

func parse(t testing.TB, list string) []int {
	t.Helper()
	set, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return set.List()
}
