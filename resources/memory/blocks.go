package memory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/resources/memory/internal/state"
	"github.com/kubeletkit/kubeletkit/resources/numa"
)

// Block is an amount of memory on some nodes.
type Block struct {
	// Nodes have the amount together.
	Nodes numa.Nodes
	// Resource is v1.ResourceMemory or that of huge pages of a size.
	Resource v1.ResourceName
	// Size is in bytes. It is 0 for an init container whose memory a later container reuses.
	Size uint64
}

func exported(list []state.Block) []Block {
	var out []Block
	for _, b := range list {
		out = append(out, Block{Nodes: numa.Of(b.NUMAAffinity...), Resource: b.Type, Size: b.Size})
	}
	return out
}

// amounts are bytes by resource.
type amounts map[v1.ResourceName]uint64

// machineState is the nodes, and the blocks on them: the content of the state.
type machineState struct {
	nodes   state.NUMANodeMap
	entries state.ContainerMemoryAssignments
}

// table returns the amounts of a resource on a node: zeros if the node has none of it.
func (s *machineState) table(node int, name v1.ResourceName) state.MemoryTable {
	if n := s.nodes[node]; n != nil && n.MemoryMap[name] != nil {
		return *n.MemoryMap[name]
	}
	return state.MemoryTable{}
}

// has reports whether the nodes have each amount together, by the field of the tables.
func (s *machineState) has(nodes numa.Nodes, request amounts, field func(state.MemoryTable) uint64) bool {
	for name, size := range request {
		var sum uint64
		for id := range nodes.All() {
			sum += field(s.table(id, name))
		}
		if sum < size {
			return false
		}
	}
	return true
}

func free(t state.MemoryTable) uint64        { return t.Free }
func allocatable(t state.MemoryTable) uint64 { return t.Allocatable }

// exist reports whether all nodes do.
func (s *machineState) exist(nodes numa.Nodes) bool {
	for id := range nodes.All() {
		if s.nodes[id] == nil {
			return false
		}
	}
	return true
}

// mixes reports whether a block on the nodes would mix groups: a node with blocks is in the same group or, as a single one, in none.
func (s *machineState) mixes(nodes numa.Nodes) bool {
	for id := range nodes.All() {
		n := s.nodes[id]
		group := numa.Of(n.Cells...)
		switch {
		case nodes.Len() == 1 && group.Len() > 1:
			return true
		case nodes.Len() > 1 && n.NumberOfAssignments > 0 && group != nodes:
			return true
		}
	}
	return false
}

// hints returns the sets of nodes that have the request, in the order of [numa.Nodes.Compare]. The smallest that could have it on an empty machine
// are preferred. reusable is what the container may take beside what is free.
func (s *machineState) hints(request amounts, reusable func(numa.Nodes, v1.ResourceName) uint64) []numa.Hint {
	ids := slices.Sorted(maps.Keys(s.nodes))
	smallest := len(ids)
	var hints []numa.Hint
	for subset := 1; subset < 1<<len(ids); subset++ {
		var nodes numa.Nodes
		for i := range numa.Nodes(subset).All() {
			nodes |= numa.Of(ids[i])
		}
		if !s.has(nodes, request, allocatable) {
			continue
		}
		smallest = min(smallest, nodes.Len())
		rest := maps.Clone(request)
		for name, size := range rest {
			rest[name] = size - min(size, reusable(nodes, name))
		}
		if !s.mixes(nodes) && s.has(nodes, rest, free) {
			hints = append(hints, numa.Hint{Nodes: nodes})
		}
	}
	slices.SortFunc(hints, func(a, b numa.Hint) int { return a.Nodes.Compare(b.Nodes) })
	for i, h := range hints {
		hints[i].Preferred = h.Nodes.Len() == smallest
	}
	return hints
}

// choose returns the nodes for the request: those of the hint or, if they do not have it or would mix groups, the best ones that contain them.
func (s *machineState) choose(request amounts, reusable func(numa.Nodes, v1.ResourceName) uint64, hint numa.Hint) (numa.Nodes, error) {
	nodes := hint.Nodes
	if !s.exist(nodes) {
		return 0, fmt.Errorf("the NUMA nodes %s do not exist", nodes)
	}
	if nodes == 0 || s.mixes(nodes) || !s.has(nodes, request, free) {
		hints := s.hints(request, reusable)
		hints = slices.DeleteFunc(hints, func(h numa.Hint) bool { return !h.Nodes.Contains(nodes) })
		if len(hints) == 0 && nodes == 0 {
			return 0, fmt.Errorf("no NUMA nodes have enough free memory: %s", s.describe(request))
		}
		if len(hints) == 0 {
			return 0, fmt.Errorf("no NUMA nodes with %s have enough free memory: %s", nodes, s.describe(request))
		}
		best := slices.MinFunc(hints, func(a, b numa.Hint) int {
			return cmp.Or(-compare(a.Preferred, b.Preferred), a.Nodes.Compare(b.Nodes))
		})
		if hint.Preferred && !best.Preferred {
			return 0, fmt.Errorf("the preferred number of NUMA nodes does not have enough free memory: %s", s.describe(request))
		}
		nodes = best.Nodes
	}
	return nodes, nil
}

// compare orders false before true.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// describe names what is requested, and what is free of it.
func (s *machineState) describe(request amounts) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(request)) {
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("%d bytes of %s requested, free are", request[name], name)
		for i, id := range slices.Sorted(maps.Keys(s.nodes)) {
			if i > 0 {
				text += ","
			}
			text += fmt.Sprintf(" %d on node %d", s.table(id, name).Free, id)
		}
	}
	return text
}

// take counts the block on its nodes, and takes the amount from what is free on them, in their order.
func (s *machineState) take(block state.Block, size uint64) {
	for _, id := range block.NUMAAffinity {
		n := s.nodes[id]
		n.NumberOfAssignments++
		n.Cells = slices.Clone(block.NUMAAffinity)
		if t := n.MemoryMap[block.Type]; t != nil {
			part := min(size, t.Free)
			t.Free -= part
			t.Reserved += part
			size -= part
		}
	}
}

// give returns the block to what is free.
func (s *machineState) give(block state.Block) {
	size := block.Size
	for _, id := range block.NUMAAffinity {
		n := s.nodes[id]
		n.NumberOfAssignments--
		if n.NumberOfAssignments == 0 {
			n.Cells = []int{id}
		}
		if t := n.MemoryMap[block.Type]; t != nil {
			part := min(size, t.Reserved)
			t.Free += part
			t.Reserved -= part
			size -= part
		}
	}
}

// drop gives back all blocks of a container. It reports whether there were any.
func (s *machineState) drop(pod, container string) bool {
	blocks, ok := s.entries[pod][container]
	for _, block := range blocks {
		s.give(block)
	}
	delete(s.entries[pod], container)
	if len(s.entries[pod]) == 0 {
		delete(s.entries, pod)
	}
	return ok
}

// dropPod is drop for all containers of a pod.
func (s *machineState) dropPod(pod string) bool {
	containers := slices.Sorted(maps.Keys(s.entries[pod]))
	for _, c := range containers {
		s.drop(pod, c)
	}
	return len(containers) > 0
}
