package numa

import (
	"cmp"
	"iter"
	"math/bits"

	"k8s.io/utils/cpuset"
)

// MaxNodes is the number of nodes that [Nodes] can have: their IDs are below it. It is kubelet's limit, that of a bit
// mask in a word.
const MaxNodes = 64

// Nodes is a set of nodes. The zero value is the empty set.
type Nodes uint64

// Of returns the set of the nodes. IDs that are not in [0, MaxNodes) are left out.
func Of(ids ...int) Nodes {
	var n Nodes
	for _, id := range ids {
		if 0 <= id && id < MaxNodes {
			n |= 1 << id
		}
	}
	return n
}

// Has reports whether the node is in the set.
func (n Nodes) Has(id int) bool { return Of(id)&n != 0 }

// Len returns the number of nodes.
func (n Nodes) Len() int { return bits.OnesCount64(uint64(n)) }

// Contains reports whether all nodes of the other set are in this one.
func (n Nodes) Contains(other Nodes) bool { return other&^n == 0 }

// All returns the nodes in the order of their IDs.
func (n Nodes) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for rest := uint64(n); rest != 0; rest &= rest - 1 {
			if !yield(bits.TrailingZeros64(rest)) {
				return
			}
		}
	}
}

// Compare orders sets as kubelet does: the one with fewer nodes comes first, of two with as many the one with the lower
// nodes.
func (n Nodes) Compare(other Nodes) int {
	return cmp.Or(cmp.Compare(n.Len(), other.Len()), cmp.Compare(n, other))
}

// String returns the set as the kernel writes it, such as "0-1,3".
func (n Nodes) String() string {
	var ids []int
	for id := range n.All() {
		ids = append(ids, id)
	}
	return cpuset.New(ids...).String()
}
