package numa_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

func ExampleNodes() {
	n := numa.Of(0, 1, 3)
	fmt.Println(n, n.Len(), n.Has(2), n.Contains(numa.Of(3)))
	// Output: 0-1,3 3 false true
}

func TestNodes(t *testing.T) {
	assert.Equal(t, []int{0, 5, 63}, slices.Collect(numa.Of(63, 5, 0, -1, 64).All()))
	assert.Empty(t, numa.Nodes(0).String())
	sets := []numa.Nodes{numa.Of(1, 2), numa.Of(2), numa.Of(0, 2), numa.Of(0), 0}
	slices.SortFunc(sets, numa.Nodes.Compare)
	assert.Equal(t, []numa.Nodes{0, numa.Of(0), numa.Of(2), numa.Of(0, 2), numa.Of(1, 2)}, sets)
}

func TestSubsets(t *testing.T) {
	assert.Empty(t, slices.Collect(numa.Nodes(0).Subsets()))
	assert.Equal(t, []numa.Nodes{numa.Of(1), numa.Of(4), numa.Of(63), numa.Of(1, 4), numa.Of(1, 63), numa.Of(4, 63),
		numa.Of(1, 4, 63)}, slices.Collect(numa.Of(1, 4, 63).Subsets()))
	all := slices.Collect(numa.Nodes(1<<10 - 1).Subsets())
	assert.Len(t, all, 1<<10-1)
	assert.True(t, slices.IsSortedFunc(all, numa.Nodes.Compare))
	assert.Len(t, slices.Compact(slices.Clone(all)), len(all))
	most := slices.Collect(numa.Nodes(1<<20 - 1).Subsets())
	assert.Len(t, most, 20*21/2)
	assert.True(t, slices.IsSortedFunc(most, numa.Nodes.Compare))
	for range numa.Nodes(1<<20 - 1).Subsets() {
		break
	}
}

func TestHints(t *testing.T) {
	var got []numa.Hint
	could := func(set numa.Nodes) bool { return set.Len() >= 2 }
	for h, fewest := range numa.Hints(numa.Of(0, 1, 2), could,
		func(set numa.Nodes) bool { return set.Contains(numa.Of(0, 2)) }) {
		got = append(got, h)
		assert.Equal(t, 2, fewest)
	}
	assert.Equal(t, []numa.Hint{{Nodes: numa.Of(0, 2), Preferred: true}, {Nodes: numa.Of(0, 1, 2)}}, got)
}
