package topology_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/node/internal/machines"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/node/placement/topology/fake"
)

// machine has so many nodes, whose distances are not all the same.
func machine(nodes int) (m numa.Machine) {
	for id := range nodes {
		n := numa.Node{ID: id}
		for other := range nodes {
			n.Distances = append(n.Distances, 10+6*((id^other)&2)+2*((id^other)&1))
		}
		m.Nodes = append(m.Nodes, n)
		m.CPUs = append(m.CPUs, numa.CPU{ID: id, Core: id, Socket: id, UncoreCache: id, Node: id})
	}
	return m
}

func policy(t testing.TB, name string, m numa.Machine, opts topology.PolicyOptions) topology.Policy {
	t.Helper()
	p, err := topology.NewPolicy(name, m, opts)
	require.NoError(t, err)
	return p
}

// oracle is the merge of the documentation of kubelet, and of its code: every choice of one hint of each resource is
// made, and better decides between each two of them. It is as slow as there are choices.
type oracle struct {
	m       numa.Machine
	closest bool
	needed  int
}

func (o oracle) best(resources [][]numa.Hint) (best numa.Hint, found bool) {
	var all numa.Nodes
	for _, n := range o.m.Nodes {
		all |= numa.Of(n.ID)
	}
	for _, hints := range resources {
		narrowest := 0
		for _, h := range hints {
			if n := h.Nodes.Len(); n > 0 && (narrowest == 0 || n < narrowest) {
				narrowest = n
			}
		}
		o.needed = max(o.needed, narrowest)
	}
	var choose func(i int, merged numa.Hint, first numa.Nodes)
	choose = func(i int, merged numa.Hint, first numa.Nodes) {
		if i == len(resources) {
			if merged.Nodes != 0 && (!found || o.better(merged, best)) {
				best, found = merged, true
			}
			return
		}
		for _, h := range resources[i] {
			next, same := merged, first
			next.Preferred = next.Preferred && h.Preferred
			if h.Nodes != 0 {
				if first == 0 {
					same = h.Nodes
				}
				next.Preferred = next.Preferred && h.Nodes == same
				next.Nodes &= h.Nodes
			}
			choose(i+1, next, same)
		}
	}
	choose(0, numa.Hint{Nodes: all, Preferred: true}, 0)
	if !found {
		best = numa.Hint{Nodes: all}
	}
	return best, found
}

func (o oracle) better(a, b numa.Hint) bool {
	if a.Preferred != b.Preferred {
		return a.Preferred
	}
	x, y := a.Nodes.Len(), b.Nodes.Len()
	if !a.Preferred && x != y {
		switch {
		case y > o.needed:
			return x < y
		case y == o.needed || x > o.needed:
			return false
		default:
			return x > y
		}
	}
	if x != y {
		return x < y
	}
	if o.closest {
		if da, db := o.average(a.Nodes), o.average(b.Nodes); da != db {
			return da < db
		}
	}
	return a.Nodes < b.Nodes
}

func (o oracle) average(set numa.Nodes) float64 {
	sum := 0
	for a := range set.All() {
		for b := range set.All() {
			sum += o.m.Nodes[a].Distances[b]
		}
	}
	return float64(sum) / float64(set.Len()*set.Len())
}

// check compares the policies with the oracle.
func check(t *testing.T, m numa.Machine, closest bool, resources [][]numa.Hint) {
	t.Helper()
	var provider []map[string][]numa.Hint
	flat := make([][]numa.Hint, len(resources))
	for i, hints := range resources {
		provider = append(provider, map[string][]numa.Hint{fmt.Sprint(i): hints})
		switch flat[i] = hints; {
		case hints == nil:
			flat[i] = []numa.Hint{{Preferred: true}}
		case len(hints) == 0:
			flat[i] = []numa.Hint{{}}
		}
	}
	opts := topology.PolicyOptions{PreferClosest: closest}
	want, _ := oracle{m: m, closest: closest}.best(flat)
	got, admit := policy(t, topology.PolicyBestEffort, m, opts).Merge(provider)
	if got != want || !admit {
		t.Fatalf("best-effort: %v %v, want %v of %v", got, admit, want, resources)
	}
	got, admit = policy(t, topology.PolicyRestricted, m, opts).Merge(provider)
	if got != want || admit != want.Preferred {
		t.Fatalf("restricted: %v %v, want %v of %v", got, admit, want, resources)
	}
	// single-numa-node: there is a node on which each resource prefers to be, or no resource cares.
	single, fits := numa.Hint{}, false
	for _, n := range append([]numa.Node{{ID: -1}}, m.Nodes...) {
		every, cares := true, false
		for _, hints := range flat {
			some := false
			for _, h := range hints {
				some = some || h.Preferred && (h.Nodes == 0 || n.ID >= 0 && h.Nodes == numa.Of(n.ID))
				cares = cares || h.Preferred && h.Nodes == numa.Of(n.ID) && n.ID >= 0
			}
			every = every && some
		}
		if every && !fits && (n.ID < 0 || cares) {
			fits = true
		}
		if every && n.ID >= 0 && cares && single.Nodes == 0 {
			single.Nodes = numa.Of(n.ID)
		}
	}
	single.Preferred = fits
	got, admit = policy(t, topology.PolicySingleNUMANode, m, opts).Merge(provider)
	if admit != fits || got != single {
		t.Fatalf("single-numa-node: %v %v, want %v of %v", got, admit, single, resources)
	}
}

// Two resources on two nodes, with every list of hints that there is.
func TestMergeOfAllHints(t *testing.T) {
	m := machine(2)
	var hints []numa.Hint
	for nodes := range numa.Nodes(4) {
		hints = append(hints, numa.Hint{Nodes: nodes}, numa.Hint{Nodes: nodes, Preferred: true})
	}
	lists := [][]numa.Hint{nil, {}}
	for chosen := 1; chosen < 1<<len(hints); chosen++ {
		var list []numa.Hint
		for i, h := range hints {
			if chosen>>i&1 == 1 {
				list = append(list, h)
			}
		}
		lists = append(lists, list)
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	for i := 0; i < len(lists); i += step {
		for j := i; j < len(lists); j += step {
			check(t, m, false, [][]numa.Hint{lists[i], lists[j]})
		}
	}
}

// Up to four resources on two to four nodes, with hints at random and such as providers have them.
func TestMergeAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		nodes := 2 + random.IntN(3)
		m := machine(nodes)
		resources := make([][]numa.Hint, 1+random.IntN(4))
		for i := range resources {
			switch random.IntN(8) {
			case 0:
			case 1:
				resources[i] = []numa.Hint{}
			case 2, 3:
				for range random.IntN(5) {
					resources[i] = append(resources[i], numa.Hint{Nodes: numa.Nodes(random.IntN(1 << nodes)),
						Preferred: random.IntN(2) == 0})
				}
			default:
				resources[i] = hintsOf(random, nodes)
			}
		}
		check(t, m, random.IntN(2) == 0, resources)
	}
}

// hintsOf returns the hints of a provider with some units on each node.
func hintsOf(random *rand.Rand, nodes int) []numa.Hint {
	capacity, free := make([]int, nodes), make([]int, nodes)
	for i := range nodes {
		capacity[i] = random.IntN(5)
		free[i] = random.IntN(capacity[i] + 1)
	}
	want, fewest, hints := 1+random.IntN(6), nodes, []numa.Hint{}
	for set := numa.Nodes(1); set < 1<<nodes; set++ {
		has, had := 0, 0
		for n := range set.All() {
			has, had = has+free[n], had+capacity[n]
		}
		if had >= want {
			fewest = min(fewest, set.Len())
		}
		if has >= want {
			hints = append(hints, numa.Hint{Nodes: set})
		}
	}
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Len() == fewest
	}
	return hints
}

func TestPreferClosest(t *testing.T) {
	m := machines.Read(t, "opteron-8n")
	far := []map[string][]numa.Hint{{"cpu": {{Nodes: numa.Of(1, 2), Preferred: true},
		{Nodes: numa.Of(6, 7), Preferred: true}}}}
	best, _ := policy(t, topology.PolicyBestEffort, m, topology.PolicyOptions{}).Merge(far)
	assert.Equal(t, numa.Of(1, 2), best.Nodes, "the distance is 22")
	best, _ = policy(t, topology.PolicyRestricted, m, topology.PolicyOptions{PreferClosest: true}).Merge(far)
	assert.Equal(t, numa.Of(6, 7), best.Nodes, "the distance is 16")
}

// The number of choices of one hint of each resource is 255^8 here.
func BenchmarkMergeEightNodes(b *testing.B) {
	p := policy(b, topology.PolicyRestricted, machines.Read(b, "opteron-8n"), topology.PolicyOptions{})
	random := rand.New(rand.NewPCG(1, 2))
	var hints []map[string][]numa.Hint
	for i := range 8 {
		var list []numa.Hint
		for set := numa.Nodes(1); set < 256; set++ {
			list = append(list, numa.Hint{Nodes: set, Preferred: random.IntN(4) == 0 && i > 0})
		}
		hints = append(hints, map[string][]numa.Hint{fmt.Sprint(i): list})
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Merge(hints)
	}
}

// Each of 4 resources has a hint for each set of 16 nodes, the most that a machine may have.
func BenchmarkMergeSixteenNodes(b *testing.B) {
	p := policy(b, topology.PolicyBestEffort, machine(16), topology.PolicyOptions{MaxAllowable: 16})
	var hints []map[string][]numa.Hint
	for i := range 4 {
		var list []numa.Hint
		for set := numa.Nodes(1); set < 1<<16; set++ {
			list = append(list, numa.Hint{Nodes: set})
		}
		hints = append(hints, map[string][]numa.Hint{fmt.Sprint(i): list})
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Merge(hints)
	}
}

// assignments calls f with the nodes that are used by each way to take so many units of those on the nodes.
func assignments(units []int, want int, used numa.Nodes, f func(used numa.Nodes)) {
	node := len(units) - 1
	if node < 0 {
		if want == 0 {
			f(used)
		}
		return
	}
	for n := 0; n <= min(units[node], want); n++ {
		if n > 0 {
			used |= numa.Of(node)
		}
		assignments(units[:node], want-n, used, f)
	}
}

// situation is what a resource can be given. fewest is the number of nodes that are needed on an idle machine.
type situation struct {
	hints  []numa.Hint
	used   []numa.Nodes
	fewest int
}

// situations are those of a resource with up to two units on each node, of which some are in use, and of which a
// container requests some: each list of hints once. It asserts that the hints of the provider are the sets of nodes on
// which there is an assignment.
func situations(t *testing.T, nodes int) (out []situation) {
	seen := map[string]bool{}
	for code := range int(math.Pow(6, float64(nodes))) {
		all, free, capacity := make([]int, nodes), make([]int, nodes), map[int]int{}
		for node := range nodes {
			of := [][2]int{{0, 0}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {2, 2}}[code%6]
			all[node], free[node], capacity[node] = of[0], of[1], of[0]
			code /= 6
		}
		provider := fake.New(port, capacity)
		for node := range nodes {
			c := requesting("c", int64(all[node]-free[node]), 0)
			require.NoError(t, provider.Allocate(pod(fmt.Sprint("other", node), c), &c,
				numa.Hint{Nodes: numa.Of(node)}))
		}
		for want := 1; want <= 2*nodes; want++ {
			s := situation{fewest: nodes + 1}
			c := requesting("c", int64(want), 0)
			s.hints = provider.Hints(pod("pod", c), &c)[string(port)]
			key := fmt.Sprint(s.hints)
			assignments(all, want, 0, func(used numa.Nodes) { s.fewest = min(s.fewest, used.Len()) })
			assignments(free, want, 0, func(used numa.Nodes) { s.used = append(s.used, used) })
			possible := []numa.Hint{}
			for set := range numa.Nodes(1<<nodes - 1).Subsets() {
				if slices.ContainsFunc(s.used, set.Contains) {
					possible = append(possible, numa.Hint{Nodes: set, Preferred: set.Len() == s.fewest})
				}
			}
			if !slices.Equal(possible, s.hints) {
				t.Fatalf("%d of %v, free %v: hints %v, want %v", want, all, free, s.hints, possible)
			}
			if !seen[key] {
				seen[key] = true
				out = append(out, s)
			}
		}
	}
	return out
}

// Two resources with up to two units on each node, of which any are in use. All ways to take units of both are tried:
// restricted admits a pod if one has both resources on the same nodes and no more of them than each needs, and
// single-numa-node if one has all on one node. The nodes that are chosen are the best ones in the policy's order, see
// oracle, and suffice.
func TestMergeOfAllAssignments(t *testing.T) {
	for nodes := 2; nodes <= 4; nodes++ {
		m := machine(nodes)
		all := situations(t, nodes)
		restricted, single := policy(t, topology.PolicyRestricted, m, topology.PolicyOptions{}),
			policy(t, topology.PolicySingleNUMANode, m, topology.PolicyOptions{})
		for i, a := range all {
			for _, b := range all[i:] {
				aligned, onOne := false, false
				for _, x := range a.used {
					for _, y := range b.used {
						n := (x | y).Len()
						aligned = aligned || a.fewest == b.fewest && n == a.fewest
						onOne = onOne || n == 1
					}
				}
				hints := []map[string][]numa.Hint{{"a": a.hints}, {"b": b.hints}}
				for _, p := range []struct {
					topology.Policy
					want bool
				}{{restricted, aligned}, {single, onOne}} {
					best, admit := p.Merge(hints)
					if admit != p.want {
						t.Fatalf("%s of %v: %v, want %v", p.Name(), hints, admit, p.want)
					}
					if admit && (best.Nodes.Len() != a.fewest || !slices.ContainsFunc(a.used, best.Nodes.Contains) ||
						!slices.ContainsFunc(b.used, best.Nodes.Contains)) {
						t.Fatalf("%s of %v: %v has too few units, or more nodes than are needed",
							p.Name(), hints, best.Nodes)
					}
				}
				for _, closest := range []bool{false, true} {
					check(t, m, closest, [][]numa.Hint{a.hints, b.hints})
				}
			}
		}
	}
}
