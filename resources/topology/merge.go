package topology

import (
	"cmp"
	"slices"

	"github.com/kubeletkit/kubeletkit/resources/numa"
)

// order compares sets of nodes.
type order struct {
	// closest prefers sets with short distances among those with as many nodes.
	closest bool
	// distances are those between nodes, by their IDs. They are set if closest is.
	distances map[int]map[int]int
}

// compare returns a negative number if a is better than b.
func (o order) compare(a, b numa.Nodes) int {
	if o.closest {
		return cmp.Or(cmp.Compare(a.Len(), b.Len()), cmp.Compare(o.total(a), o.total(b)), a.Compare(b))
	}
	return a.Compare(b)
}

// total returns the sum of the distances between the nodes of a set. Sets with as many nodes have as many distances.
func (o order) total(n numa.Nodes) (sum int) {
	for a := range n.All() {
		for b := range n.All() {
			sum += o.distances[a][b]
		}
	}
	return sum
}

// merge returns the best intersection of one hint of each resource. all is the set of all nodes. If there is none, it returns all nodes, not
// preferred.
//
// An intersection is preferred if it is made of preferred hints with the same nodes, so such ones are looked for first, set by set. All other
// intersections are found resource by resource: there are no more of them than sets of nodes.
func merge(all numa.Nodes, resources [][]numa.Hint, o order) numa.Hint {
	if best, ok := mergePreferred(all, resources, o); ok {
		return numa.Hint{Nodes: best, Preferred: true}
	}
	ids := slices.Collect(all.All())
	reached, seen := []numa.Nodes{pack(all, ids)}, make([]bool, 1<<len(ids))
	for _, hints := range resources {
		var next []numa.Nodes
		clear(seen)
		for _, h := range hints {
			own := pack(h.Nodes, ids)
			if h.Nodes == 0 {
				own = pack(all, ids)
			}
			for _, n := range reached {
				if n &= own; n != 0 && !seen[n] {
					seen[n] = true
					next = append(next, n)
				}
			}
		}
		reached = next
	}
	best, needed := numa.Nodes(0), needed(resources)
	for _, n := range reached {
		if n = unpack(n, ids); best == 0 || o.compareOthers(n, best, needed) < 0 {
			best = n
		}
	}
	if best == 0 {
		best = all
	}
	return numa.Hint{Nodes: best}
}

// pack returns the set with the positions of the nodes in the list instead of their IDs, so that it is an index.
func pack(n numa.Nodes, ids []int) (packed numa.Nodes) {
	for i, id := range ids {
		if n.Has(id) {
			packed |= numa.Of(i)
		}
	}
	return packed
}

// unpack is the inverse of pack.
func unpack(packed numa.Nodes, ids []int) (n numa.Nodes) {
	for i := range packed.All() {
		n |= numa.Of(ids[i])
	}
	return n
}

// mergePreferred returns the best set of nodes that each resource prefers.
func mergePreferred(all numa.Nodes, resources [][]numa.Hint, o order) (best numa.Nodes, ok bool) {
	votes, anywhere := map[numa.Nodes]int{}, 0
	for _, hints := range resources {
		own := map[numa.Nodes]bool{}
		for _, h := range hints {
			if h.Preferred {
				own[h.Nodes] = true
			}
		}
		if own[0] { // it agrees to any set
			anywhere++
		}
		for n := range own {
			switch {
			case n == 0:
			case own[0]:
				votes[n] += 0 // a candidate
			default:
				votes[n]++
			}
		}
	}
	if anywhere == len(resources) {
		best, ok = all, true
	}
	for n, count := range votes {
		if n &= all; n != 0 && count == len(resources)-anywhere && (!ok || o.compare(n, best) < 0) {
			best, ok = n, true
		}
	}
	return best, ok
}

// needed returns the number of nodes of the resource that needs the most: of its narrowest hint.
func needed(resources [][]numa.Hint) (most int) {
	for _, hints := range resources {
		narrowest := 0
		for _, h := range hints {
			if n := h.Nodes.Len(); n > 0 && (narrowest == 0 || n < narrowest) {
				narrowest = n
			}
		}
		most = max(most, narrowest)
	}
	return most
}

// compareOthers compares sets that are not preferred: the best ones have as many nodes as needed, then come those with fewer, the largest
// first, then those with more, the smallest first.
func (o order) compareOthers(a, b numa.Nodes, needed int) int {
	rank := func(n numa.Nodes) int {
		if n.Len() <= needed {
			return needed - n.Len()
		}
		return numa.MaxNodes + n.Len()
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), o.compare(a, b))
}
