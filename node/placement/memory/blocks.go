package memory

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/placement/memory/internal/state"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
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
	// pods are those with memory as a whole. Their blocks count, and not those of their containers, which are parts.
	pods state.PodMemoryAssignments
}

// table returns the amounts of a resource on a node: zeros if the node has none of it.
func (s *machineState) table(node int, name v1.ResourceName) state.MemoryTable {
	if n := s.nodes[node]; n != nil && n.MemoryMap[name] != nil {
		return *n.MemoryMap[name]
	}
	return state.MemoryTable{}
}

// exist reports whether all nodes do.
func (s *machineState) exist(nodes numa.Nodes) bool {
	for id := range nodes.All() {
		if s.nodes[id] == nil {
			return false
		}
	}
	return true
}

// view is what of a machine counts for a request, so that many sets of nodes are compared fast.
type view struct {
	// groups are those of nodes with blocks, by the IDs of the nodes.
	groups [numa.MaxNodes]numa.Nodes
	rows   []row
}

// row is a requested resource, with its amounts by the IDs of nodes.
type row struct {
	name              v1.ResourceName
	size              uint64
	free, allocatable [numa.MaxNodes]uint64
}

func (s *machineState) view(request amounts) *view {
	v := &view{}
	for id, n := range s.nodes {
		if n.NumberOfAssignments > 0 {
			v.groups[id] = numa.Of(n.Cells...)
		}
	}
	for name, size := range request {
		r := row{name: name, size: size}
		for id := range s.nodes {
			t := s.table(id, name)
			r.free[id], r.allocatable[id] = t.Free, t.Allocatable
		}
		v.rows = append(v.rows, r)
	}
	return v
}

func sum(nodes numa.Nodes, of *[numa.MaxNodes]uint64) (sum uint64) {
	for id := range nodes.All() {
		sum += of[id]
	}
	return sum
}

// mixes reports whether a block on the nodes would mix groups: a node with blocks is in the same group.
func (v *view) mixes(nodes numa.Nodes) bool {
	for id := range nodes.All() {
		if g := v.groups[id]; g != 0 && g != nodes {
			return true
		}
	}
	return false
}

// could reports whether the nodes have the request on an empty machine.
func (v *view) could(nodes numa.Nodes) bool {
	for i := range v.rows {
		if sum(nodes, &v.rows[i].allocatable) < v.rows[i].size {
			return false
		}
	}
	return true
}

// can reports whether the nodes have the request without what is reusable on them, nil for nothing.
func (v *view) can(nodes numa.Nodes, reusable func(numa.Nodes, v1.ResourceName) uint64) bool {
	if v.mixes(nodes) || !v.could(nodes) {
		return false
	}
	for i := range v.rows {
		r := &v.rows[i]
		has := sum(nodes, &r.free)
		if has < r.size && reusable != nil {
			has += reusable(nodes, r.name)
		}
		if has < r.size {
			return false
		}
	}
	return true
}

// hints returns the sets of nodes that have the request, see [numa.Hints]. reusable is what the container may take
// beside what is free.
func (s *machineState) hints(request amounts,
	reusable func(numa.Nodes, v1.ResourceName) uint64) iter.Seq2[numa.Hint, int] {
	v := s.view(request)
	return numa.Hints(numa.Of(slices.Collect(maps.Keys(s.nodes))...), v.could,
		func(nodes numa.Nodes) bool { return v.can(nodes, reusable) })
}

// choose returns the nodes for the request: those of the hint or, if they do not have it or would mix groups, the best
// ones that contain them.
func (s *machineState) choose(request amounts, reusable func(numa.Nodes, v1.ResourceName) uint64,
	hint numa.Hint) (numa.Nodes, error) {
	nodes := hint.Nodes
	if !s.exist(nodes) {
		return 0, fmt.Errorf("the NUMA nodes %s do not exist", nodes)
	}
	if nodes == 0 || !s.view(request).can(nodes, nil) {
		var best numa.Hint
		for h := range s.hints(request, reusable) {
			if h.Nodes.Contains(nodes) {
				best = h
				break
			}
		}
		switch {
		case best.Nodes == 0 && nodes == 0:
			return 0, fmt.Errorf("no NUMA nodes have enough free memory: %s", s.describe(request))
		case best.Nodes == 0:
			return 0, fmt.Errorf("no NUMA nodes with %s have enough free memory: %s", nodes, s.describe(request))
		case hint.Preferred && !best.Preferred:
			return 0, fmt.Errorf("the preferred number of NUMA nodes does not have enough free memory: %s",
				s.describe(request))
		}
		nodes = best.Nodes
	}
	return nodes, nil
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
	if _, part := s.pods[pod]; part {
		blocks = nil
	}
	for _, block := range blocks {
		s.give(block)
	}
	delete(s.entries[pod], container)
	if len(s.entries[pod]) == 0 {
		delete(s.entries, pod)
	}
	return ok
}

// passOn gives back what an init container has that has ended, and reports whether that was something. If no other
// container of the pod has blocks, as in a pod with resources as a whole, it stays there without blocks: the next agent
// must not take memory for it.
func (s *machineState) passOn(pod, init string) bool {
	if len(s.entries[pod][init]) == 0 {
		return false
	}
	s.drop(pod, init)
	if len(s.entries[pod]) == 0 {
		s.entries[pod] = map[string][]state.Block{init: {}}
	}
	return true
}

// dropPod is drop for all containers of a pod.
func (s *machineState) dropPod(pod string) bool {
	containers := slices.Sorted(maps.Keys(s.entries[pod]))
	for _, c := range containers {
		s.drop(pod, c)
	}
	for _, block := range s.pods[pod].MemoryBlocks {
		s.give(block)
	}
	delete(s.pods, pod)
	return len(containers) > 0
}
