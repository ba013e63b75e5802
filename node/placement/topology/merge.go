package topology

import (
	"cmp"
	"slices"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
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

// merge returns the best intersection of one hint of each resource. all is the set of all nodes. If there is none, it
// returns all nodes, not preferred.
//
// An intersection is preferred if it is made of preferred hints with the same nodes, so such ones are looked for first,
// set by set. All other intersections are found resource by resource: there are no more of them than sets of nodes.
func merge(all numa.Nodes, resources [][]numa.Hint, o order) numa.Hint {
	if best, ok := mergePreferred(all, resources, o); ok {
		return numa.Hint{Nodes: best, Preferred: true}
	}
	ids := slices.Collect(all.All())
	whole := 1<<len(ids) - 1
	// by sets: 1 for those that are reached, and those of the hints
	reached, own := make([]uint64, whole+1), make([]uint64, whole+1)
	reached[whole] = 1
	for _, hints := range resources {
		clear(own)
		for _, h := range hints {
			if h.Nodes == 0 {
				own[whole] = 1
			} else {
				own[pack(h.Nodes, ids)] = 1
			}
		}
		intersect(reached, own)
		reached[0] = 0
	}
	best, needed := numa.Nodes(0), needed(resources)
	for packed, is := range reached {
		if is == 0 {
			continue
		}
		if n := unpack(numa.Nodes(packed), ids); best == 0 || o.compareOthers(n, best, needed) < 0 {
			best = n
		}
	}
	if best == 0 {
		best = all
	}
	return numa.Hint{Nodes: best}
}

// intersect makes a the intersections of each set of a with each one of b. Both have 1 for each of their sets; b is
// lost. The sets of a and b that contain a set are counted; the product counts the pairs whose intersection contains
// it. So the cost grows with the number of sets, and not with its square.
func intersect(a, b []uint64) {
	addSupersets(a, 1)
	addSupersets(b, 1)
	for i := range a {
		a[i] *= b[i]
	}
	addSupersets(a, ^uint64(0)) // -1: the inverse
	for i := range a {
		a[i] = min(a[i], 1)
	}
}

// addSupersets adds to the value of each set those of the sets that contain it, times sign.
func addSupersets(values []uint64, sign uint64) {
	for node := 1; node < len(values); node *= 2 {
		for i := range values {
			if i&node == 0 {
				values[i] += sign * values[i|node]
			}
		}
	}
}

// pack returns the set with the positions of the nodes in the list instead of their IDs, so that it is an index.
func pack(n numa.Nodes, ids []int) (packed numa.Nodes) {
	for i, id := range ids {
		packed |= n >> id & 1 << i
	}
	return packed
}

// unpack is the inverse of pack.
func unpack(packed numa.Nodes, ids []int) (n numa.Nodes) {
	for i := range packed.All() {
		n |= 1 << ids[i]
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

// compareOthers compares sets that are not preferred: the best ones have as many nodes as needed, then come those with
// fewer, the largest first, then those with more, the smallest first.
func (o order) compareOthers(a, b numa.Nodes, needed int) int {
	rank := func(n numa.Nodes) int {
		if n.Len() <= needed {
			return needed - n.Len()
		}
		return numa.MaxNodes + n.Len()
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), o.compare(a, b))
}
