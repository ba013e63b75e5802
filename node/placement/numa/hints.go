package numa

import (
	"iter"
	"slices"
)

// Hint is a set of nodes on which a container can have a resource.
type Hint struct {
	// Nodes is the set. The empty set means that no node is better than another one.
	Nodes Nodes
	// Preferred means that the provider of the resource knows no better set: for CPUs, one with as few nodes as
	// possible.
	Preferred bool
}

// maxSubsets is the number of nodes up to which all of their sets are considered: the most for which kubelet's topology
// manager has policies.
const maxSubsets = 16

// Subsets returns the sets of the nodes but the empty one, in the order of [Nodes.Compare]. Of more than 16 nodes it
// returns only those sets that have all nodes between two, since there are 2 to the power of their number.
func (n Nodes) Subsets() iter.Seq[Nodes] {
	ids := slices.Collect(n.All())
	return func(yield func(Nodes) bool) {
		for size := 1; size <= len(ids); size++ {
			if len(ids) > maxSubsets {
				for first := range len(ids) - size + 1 {
					if !yield(Of(ids[first : first+size]...)) {
						return
					}
				}
				continue
			}
			for set := 1<<size - 1; set < 1<<len(ids); {
				var out Nodes
				for i := range Nodes(set).All() {
					out |= 1 << ids[i]
				}
				if !yield(out) {
					return
				}
				lowest := set & -set
				next := set + lowest // the next larger number with as many bits
				set = (next^set)>>2/lowest | next
			}
		}
	}
}

// Hints returns the sets of the nodes that can serve a request, in the order of [Nodes.Compare]. could reports whether
// a set can serve it on an empty machine. The hints with as few nodes as the smallest set that could are preferred;
// their number is fewest.
func Hints(nodes Nodes, could, can func(Nodes) bool) iter.Seq2[Hint, int] {
	return func(yield func(h Hint, fewest int) bool) {
		fewest := 0
		for set := range nodes.Subsets() {
			if fewest == 0 && could(set) {
				fewest = set.Len()
			}
			if can(set) && !yield(Hint{Nodes: set, Preferred: set.Len() == fewest}, fewest) {
				return
			}
		}
	}
}
