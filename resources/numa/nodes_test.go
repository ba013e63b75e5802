package numa_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/resources/numa"
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
