package cpus

import (
	"cmp"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

// level is a kind of group of CPUs.
type level int

const (
	node level = iota
	socket
	uncore
	core
	levels
)

// group is the CPUs that share something: a memory node, a socket, a cache or a core.
type group struct {
	// id is that of [numa.CPU].
	id int
	// cpus are indices of layout.cpus, in the order of their IDs.
	cpus []int
}

// layout has the CPUs of a machine in groups. It is immutable.
type layout struct {
	cpus  []numa.CPU
	index map[int]int // of cpus, by ID
	// groups are those of each level, in the order of their IDs.
	groups [levels][]group
	// of is the group of each CPU, by level and index.
	of  [levels][]int
	all cpuset.CPUSet
	// socketsFirst means that a socket has several memory nodes, and not a node several sockets.
	socketsFirst bool
}

func newLayout(m numa.Machine) *layout {
	l := &layout{cpus: slices.SortedFunc(slices.Values(m.CPUs),
		func(a, b numa.CPU) int { return cmp.Compare(a.ID, b.ID) }), index: map[int]int{}}
	ids := make([]int, len(l.cpus))
	for i, c := range l.cpus {
		ids[i], l.index[c.ID] = c.ID, i
	}
	l.all = cpuset.New(ids...)
	for lv, id := range map[level]func(numa.CPU) int{
		node:   func(c numa.CPU) int { return c.Node },
		socket: func(c numa.CPU) int { return c.Socket },
		uncore: func(c numa.CPU) int { return c.UncoreCache },
		core:   func(c numa.CPU) int { return c.Core },
	} {
		byID := map[int][]int{}
		for i, c := range l.cpus {
			byID[id(c)] = append(byID[id(c)], i)
		}
		l.of[lv] = make([]int, len(l.cpus))
		for id, cpus := range byID {
			l.groups[lv] = append(l.groups[lv], group{id, cpus})
		}
		slices.SortFunc(l.groups[lv], func(a, b group) int { return cmp.Compare(a.id, b.id) })
		for g, group := range l.groups[lv] {
			for _, i := range group.cpus {
				l.of[lv][i] = g
			}
		}
	}
	l.socketsFirst = len(l.groups[socket]) < len(l.groups[node])
	return l
}

// perGroup returns the number of CPUs in a group of the level, rounded down where these differ.
func (l *layout) perGroup(lv level) int {
	if len(l.groups[lv]) == 0 {
		return 0
	}
	return len(l.cpus) / len(l.groups[lv])
}

// within returns the CPUs of the set that are in groups whose ID is accepted.
func (l *layout) within(set cpuset.CPUSet, lv level, accept func(id int) bool) cpuset.CPUSet {
	var ids []int
	for _, id := range set.UnsortedList() {
		if i, ok := l.index[id]; ok && accept(l.groups[lv][l.of[lv][i]].id) {
			ids = append(ids, id)
		}
	}
	return cpuset.New(ids...)
}

// together reports whether all CPUs of the set are in one group.
func (l *layout) together(set cpuset.CPUSet, lv level) bool {
	groups := map[int]bool{}
	for _, id := range set.UnsortedList() {
		groups[l.of[lv][l.index[id]]] = true
	}
	return len(groups) == 1
}

// wholeCores returns the CPUs of all cores with a CPU in the set.
func (l *layout) wholeCores(set cpuset.CPUSet) cpuset.CPUSet {
	cores := map[int]bool{}
	for _, id := range set.UnsortedList() {
		if i, ok := l.index[id]; ok {
			cores[l.groups[core][l.of[core][i]].id] = true
		}
	}
	return l.within(l.all, core, func(id int) bool { return cores[id] })
}
