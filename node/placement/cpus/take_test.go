package cpus_test

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/node/internal/machines"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
)

func set(t testing.TB, list string) cpuset.CPUSet {
	t.Helper()
	s, err := cpuset.Parse(list)
	require.NoError(t, err)
	return s
}

func options(t testing.TB, names ...string) cpus.PolicyOptions {
	t.Helper()
	given := map[string]string{}
	for _, name := range names {
		given[name] = "true"
	}
	o, err := cpus.ParsePolicyOptions(given)
	require.NoError(t, err)
	return o
}

func TestTake(t *testing.T) {
	for _, tc := range []struct {
		machine, options, free string
		n                      int
		want                   string
	}{
		// Whole cores, in the order of their IDs; what is used already comes first.
		{"xeon-smt-2n", "", "0-31", 1, "0"},
		{"xeon-smt-2n", "", "0-31", 2, "0,16"},
		{"xeon-smt-2n", "", "0-31", 3, "0-1,16"},
		{"xeon-smt-2n", "", "1-31", 1, "16"},
		{"xeon-smt-2n", "", "1-31", 2, "1,17"},
		{"xeon-smt-2n", "", "0-8,16-24", 2, "8,24"}, // node 1 has the fewest free CPUs
		// Whole nodes and sockets.
		{"xeon-smt-2n", "", "0-31", 16, "0-7,16-23"},
		{"xeon-smt-2n", "", "1-31", 16, "8-15,24-31"},
		{"xeon-smt-2n", "", "0-31", 18, "0-8,16-24"},
		{"xeon-4n", "", "0-39", 10, "0,4,8,12,16,20,24,28,32,36"},
		{"opteron-8n", "", "0-63", 8, "0-7"},
		{"opteron-8n", "", "0-63", 16, "0-15"},
		{"opteron-8n", "", "8-63", 16, "16-31"}, // a socket before two nodes
		{"opteron-8n", "", "8-63", 8, "8-15"},
		{"opteron-8n", "", "0-63", 24, "0-23"},
		// Single threads of different cores.
		{"xeon-smt-2n", cpus.OptionDistributeCores, "0-31", 4, "0-3"},
		{"xeon-smt-2n", cpus.OptionDistributeCores, "8-15,24-31", 9, "8-15,24"},
		// Evenly from nodes, if one does not suffice.
		{"xeon-smt-2n", cpus.OptionDistributeNUMA, "0-31", 16, "0-7,16-23"},
		{"xeon-smt-2n", cpus.OptionDistributeNUMA, "0-31", 20, "0-4,8-12,16-20,24-28"},
		{"xeon-smt-2n", cpus.OptionDistributeNUMA, "0-31", 18, "0-4,8-12,16-19,24-27"},
		{"xeon-4n", cpus.OptionDistributeNUMA, "0-39", 12, "0-1,4-5,8-9,12-13,16-17,20-21"},
		{"arm-4n", cpus.OptionDistributeNUMA, "0-127", 96, "0-95"},
		{"xeon-smt-2n", cpus.OptionDistributeNUMA + "," + cpus.OptionFullPCPUsOnly, "0-31", 18, "0-4,8-11,16-20,24-27"},
		// By caches.
		{"epyc-1n", cpus.OptionPreferUncoreCache, "1-31,33-63", 8, "4-7,36-39"},
		{"epyc-1n", "", "1-31,33-63", 8, "1-4,33-36"},
		{"epyc-1n", cpus.OptionPreferUncoreCache, "1-31,33-63", 4, "1-2,33-34"},
		{"epyc-1n", cpus.OptionPreferUncoreCache, "0-31,32-63", 10, "0-4,32-36"},
		{"epyc-1n", cpus.OptionPreferUncoreCache, "0-31,32-63", 3, "0-1,32"},
		// Machines without SMT or caches, with holes.
		{"opteron865-8n", "", "3-15", 3, "3-5"},
		{"power-gpu", "", "0-15,88-103", 6, "0-5"},
		{"offline", "", "4-20", 3, "5,7,9"}, // node 1 has all; the socket with the fewest CPUs
		{"xeon-2n", "", "0-15", 0, ""},
	} {
		t.Run(fmt.Sprintf("%s %s %d of %s", tc.machine, tc.options, tc.n, tc.free), func(t *testing.T) {
			var names []string
			if tc.options != "" {
				names = strings.Split(tc.options, ",")
			}
			got, err := cpus.Take(machines.Read(t, tc.machine), set(t, tc.free), tc.n, options(t, names...))
			require.NoError(t, err)
			assert.Equal(t, set(t, tc.want).String(), got.String())
		})
	}
	_, err := cpus.Take(machines.Read(t, "xeon-2n"), set(t, "0-3"), 5, cpus.PolicyOptions{})
	assert.EqualError(t, err, "not enough cpus available to satisfy request: requested=5, available=4")
}

func TestHints(t *testing.T) {
	show := func(hints []numa.Hint) (out []string) {
		for _, h := range hints {
			s := h.Nodes.String()
			if h.Preferred {
				s += "*"
			}
			out = append(out, s)
		}
		return out
	}
	for _, tc := range []struct {
		machine, options, free, reusable string
		n                                int
		want                             []string
	}{
		{"xeon-2n", "", "1-15", "", 4, []string{"0*", "1*", "0-1"}},
		{"xeon-2n", "", "1-15", "", 8, []string{"1*", "0-1"}},
		{"xeon-2n", "", "1-7,9-15", "", 8, []string{"0-1"}}, // one node would suffice if it were empty
		{"xeon-2n", "", "1-15", "", 9, []string{"0-1*"}},
		{"xeon-2n", "", "1-15", "", 16, []string{}},
		{"xeon-2n", "", "4-7", "8-9", 4, []string{"0-1"}}, // what is reused must be part of it
		{"xeon-2n", "", "4-13", "14-15", 4, []string{"1*", "0-1"}},
		{"opteron-8n", cpus.OptionAlignBySocket, "4-7,12-15", "", 8, []string{"0-1*", "0-2", "0-1,3"}},
	} {
		got := show(cpus.Hints(machines.Read(t, tc.machine), set(t, tc.free), set(t, tc.reusable), tc.n,
			optionsOf(t, tc.options)))
		if tc.machine == "opteron-8n" {
			assert.Subset(t, got, tc.want)
			continue
		}
		assert.ElementsMatch(t, tc.want, got, "%s %d of %s", tc.machine, tc.n, tc.free)
	}
}

func optionsOf(t testing.TB, list string) cpus.PolicyOptions {
	if list == "" {
		return cpus.PolicyOptions{}
	}
	return options(t, strings.Split(list, ",")...)
}

func TestPolicyOptions(t *testing.T) {
	_, err := cpus.ParsePolicyOptions(map[string]string{"full-pcpus-only": "maybe", "fast": "true"})
	require.ErrorContains(t, err, `option "full-pcpus-only"`)
	require.ErrorContains(t, err, `option "fast" is unknown`)
	for _, pair := range [][2]string{
		{cpus.OptionFullPCPUsOnly, cpus.OptionDistributeCores}, {cpus.OptionDistributeNUMA, cpus.OptionDistributeCores},
		{cpus.OptionPreferUncoreCache, cpus.OptionDistributeCores}, {cpus.OptionPreferUncoreCache, cpus.OptionDistributeNUMA},
	} {
		_, err := cpus.ParsePolicyOptions(map[string]string{pair[0]: "true", pair[1]: "true"})
		assert.ErrorContains(t, err, "exclude each other", pair)
	}
	align := options(t, cpus.OptionAlignBySocket)
	require.NoError(t, align.Validate(machines.Read(t, "opteron-8n"), topology.PolicyRestricted))
	require.ErrorContains(t, align.Validate(machines.Read(t, "opteron-8n"), topology.PolicySingleNUMANode),
		"exclude each other")
	require.ErrorContains(t, align.Validate(machines.Read(t, "offline"), topology.PolicyNone),
		"2 sockets on 1 memory nodes")
}

// 16 CPUs of 128, from hints to the assignment, with the hints of two devices beside.
func BenchmarkAllocate(b *testing.B) {
	m := machines.Read(b, "arm-4n")
	manager, err := cpus.New(m, "unused", &setter{}, cpus.Options{ReservedCount: 2})
	require.NoError(b, err)
	policy, err := topology.NewPolicy(topology.PolicyRestricted, m, topology.PolicyOptions{PreferClosest: true})
	require.NoError(b, err)
	device := map[string][]numa.Hint{"a": {{Nodes: numa.Of(2), Preferred: true}, {Nodes: numa.Of(2, 3)}},
		"b": {{Nodes: numa.Of(1), Preferred: true}, {Nodes: numa.Of(2), Preferred: true}}}
	p := guaranteed("p", 16)
	b.ReportAllocs()
	for b.Loop() {
		c := &p.Spec.Containers[0]
		best, admit := policy.Merge([]map[string][]numa.Hint{manager.Hints(p, c), maps.Clone(device)})
		if err := manager.Allocate(p, c, best); err != nil || !admit {
			b.Fatal(err, admit)
		}
		manager.Refused(p)
	}
}

// What kubelet takes in the same situations.
func TestTakesWhatKubeletTakes(t *testing.T) {
	data, err := os.ReadFile("testdata/kubelet.txt")
	require.NoError(t, err)
	checked := 0
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(strings.TrimSpace(line), "|")
		require.Len(t, fields, 6, line)
		n, err := strconv.Atoi(fields[3])
		require.NoError(t, err)
		got, err := cpus.TakeNearForTest(machines.Read(t, fields[0]), set(t, fields[2]), n,
			numa.Of(set(t, fields[4]).List()...), optionsOf(t, fields[1]))
		require.NoError(t, err, line)
		assert.Equal(t, fields[5], got.String(), line)
		checked++
	}
	assert.Greater(t, checked, 100)
}

// On a machine whose sockets are not equal, no CPU is taken that is not free.
func TestTakesFreeCPUsOnly(t *testing.T) {
	got, err := cpus.Take(machines.Read(t, "offline"), set(t, "5-20"), 12, cpus.PolicyOptions{})
	require.NoError(t, err)
	assert.False(t, got.Contains(4), got)
}
