package topology

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

func TestConflict(t *testing.T) {
	preferred := func(sets ...numa.Nodes) (out []numa.Hint) {
		for _, n := range sets {
			out = append(out, numa.Hint{Nodes: n, Preferred: true})
		}
		return out
	}
	zero, one, both := numa.Of(0), numa.Of(1), numa.Of(0, 1)
	many, sets := map[string][]numa.Hint{}, []numa.Hint(nil)
	for i := range 12 {
		many[fmt.Sprintf("r%02d", i)] = preferred(numa.Of(i))
		sets = append(sets, preferred(numa.Of(11-i))...)
	}
	for name, tc := range map[string]struct {
		container string
		hints     []map[string][]numa.Hint
		want      string
	}{
		"two resources on different nodes": {
			"main", []map[string][]numa.Hint{{"cpu": append(preferred(zero), numa.Hint{Nodes: both})}, {"memory": nil},
				{"example.com/gpu": preferred(one)}},
			`container "main" can have cpu on NUMA node 0; example.com/gpu on NUMA node 1`,
		},
		"the pod as a whole": {
			"", []map[string][]numa.Hint{{"cpu": preferred(both), "memory": preferred(one, zero)}},
			"the pod can have cpu on NUMA nodes 0-1; memory on NUMA node 0 or 1",
		},
		"spread": {
			"main", []map[string][]numa.Hint{{"cpu": {{Nodes: both}, {Nodes: numa.Of(0, 2)},
				{Nodes: numa.Of(0, 1, 2)}}}},
			`container "main" can have cpu on NUMA nodes 0-1 or 0,2, more than it needs on an idle machine`,
		},
		"none": {
			"main", []map[string][]numa.Hint{{"cpu": preferred(zero)}, {"example.com/gpu": {}, "example.com/nic": {}}},
			`container "main" can have example.com/gpu on no NUMA node; example.com/nic on no NUMA node`,
		},
		"anywhere": {"main", []map[string][]numa.Hint{{"cpu": {{}}}}, `container "main" can have cpu anywhere`},
		"many sets": {
			"main", []map[string][]numa.Hint{{"cpu": sets}},
			`container "main" can have cpu on NUMA node 0 or 1 or 2 or 3 or …`,
		},
		"many resources": {
			"main", []map[string][]numa.Hint{many},
			`container "main" can have r00 on NUMA node 0; r01 on NUMA node 1; r02 on NUMA node 2; r03 on NUMA node 3; ` +
				`r04 on NUMA node 4; r05 on NUMA node 5; r06 on NUMA node 6; r07 on NUMA node 7; and 4 more`,
		},
		"a policy of one's own": {"main", nil, ""},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, conflict(tc.container, tc.hints)) })
	}
}
