package topology_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/internal/machines"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/node/placement/topology/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	port = v1.ResourceName("example.com/port")
	gpu  = v1.ResourceName("example.com/gpu")
)

// requesting returns a container that requests units of the resources.
func requesting(name string, ports, gpus int64) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		port: *resource.NewQuantity(ports, resource.DecimalSI), gpu: *resource.NewQuantity(gpus, resource.DecimalSI),
	}}}
}

func pod(name string, containers ...v1.Container) *v1.Pod {
	return testpod.New(name, testpod.UID(types.UID(name)), testpod.Container(containers...))
}

// newManager returns a manager in an agent with the providers.
func newManager(t testing.TB, opts topology.Options, providers ...lifecycle.Component) *topology.Manager {
	t.Helper()
	return newManagerOf(t, nodefake.NewNode(), opts, providers...)
}

func newManagerOf(t testing.TB, node *nodefake.Node, opts topology.Options,
	providers ...lifecycle.Component) *topology.Manager {
	t.Helper()
	m, err := topology.New(opts)
	require.NoError(t, err)
	node.SetComponents(providers...)
	require.NoError(t, m.Join(node))
	return m
}

func admit(t *testing.T, m *topology.Manager, p *v1.Pod, providers ...*fake.Provider) error {
	t.Helper()
	_, err := m.Admit(lifecycle.AdmitRequest{Pod: p})
	for _, provider := range providers {
		if err != nil {
			provider.Refused(p)
		}
	}
	return err
}

func TestScopes(t *testing.T) {
	for _, tc := range []struct {
		policy string
		scope  topology.Scope
		err    string
		ports  [2][]int
	}{
		{topology.PolicyNone, "", "", [2][]int{{0, 0}, {1, 1}}},
		{topology.PolicyBestEffort, topology.ScopeContainer, "", [2][]int{{0, 0}, {1, 1}}},
		{topology.PolicySingleNUMANode, "", "", [2][]int{{0, 0}, {1, 1}}},
		{topology.PolicySingleNUMANode, topology.ScopePod, topology.ReasonAffinity, [2][]int{}},
		{topology.PolicyRestricted, topology.ScopePod, "", [2][]int{{0, 0}, {1, 1}}}, // no single node has 4 ports, so 2 are preferred
	} {
		t.Run(fmt.Sprint(tc.policy, " ", tc.scope), func(t *testing.T) {
			ports := fake.New(port, map[int]int{0: 2, 1: 2})
			m := newManager(t, topology.Options{Policy: policy(t, tc.policy, machine(2), topology.PolicyOptions{}),
				Scope: tc.scope}, ports)
			p := pod("p", requesting("a", 2, 0), requesting("b", 2, 0))
			err := admit(t, m, p)
			if refusal := (*runtime.TerminalError)(nil); tc.err != "" {
				require.ErrorAs(t, err, &refusal)
				assert.Equal(t, tc.err, refusal.Reason)
				assert.Equal(t, "Resources cannot be allocated with Topology locality: the pod can have "+
					"example.com/port on NUMA nodes 0-1", refusal.Message)
			} else {
				require.NoError(t, err)
				require.NoError(t, admit(t, m, p), "again, as after a restart")
			}
			for i, name := range []string{"a", "b"} {
				assert.Equal(t, tc.ports[i], ports.Given("p", name))
			}
		})
	}
}

// The second resource decides on which node the first one is, and a pod that is refused keeps nothing.
func TestAlignment(t *testing.T) {
	ports, gpus := fake.New(port, map[int]int{0: 2, 1: 2}), fake.New(gpu, map[int]int{0: 0, 1: 2})
	m := newManager(t, topology.Options{
		Policy: policy(t, topology.PolicyRestricted, machine(2), topology.PolicyOptions{})}, ports, gpus)
	require.NoError(t, admit(t, m, pod("a", requesting("c", 1, 1))))
	assert.Equal(t, []int{1}, ports.Given("a", "c"))
	require.NoError(t, admit(t, m, pod("b", requesting("c", 1, 0))))
	assert.Equal(t, []int{0}, ports.Given("b", "c"))

	err := admit(t, m, pod("c", requesting("x", 1, 0), requesting("y", 2, 1)), ports, gpus)
	require.ErrorContains(t, err, topology.ReasonAffinity)
	assert.Empty(t, ports.Given("c", "x"))
	require.NoError(t, admit(t, m, pod("d", requesting("c", 1, 1))))

	_, err = m.Admit(lifecycle.AdmitRequest{Pod: pod("d", requesting("c", 9, 9)),
		Held: pod("d", requesting("c", 1, 1))})
	assert.NoError(t, err, "a resize")
}

// A pod that holds all that it requests is admitted with a policy that would not place it there, and no other pod is.
func TestChangeOfThePolicy(t *testing.T) {
	for _, scope := range []topology.Scope{topology.ScopeContainer, topology.ScopePod} {
		t.Run(string(scope), func(t *testing.T) {
			ports, gpus := fake.New(port, map[int]int{0: 4, 1: 4}), fake.New(gpu, map[int]int{1: 4})
			node := nodefake.NewNode()
			with := func(name string) *topology.Manager {
				return newManagerOf(t, node, topology.Options{
					Policy: policy(t, name, machine(2), topology.PolicyOptions{}), Scope: scope}, ports, gpus)
			}
			// ports of node 0, and gpus of node 1
			far := pod("far", requesting("a", 3, 1), requesting("b", 3, 0), requesting("c", 0, 0))
			require.NoError(t, admit(t, with(topology.PolicyNone), far))
			for _, name := range []string{topology.PolicySingleNUMANode, topology.PolicyRestricted,
				topology.PolicyBestEffort} {
				require.NoError(t, admit(t, with(name), far))
				assert.Equal(t, []int{0, 0, 0}, ports.Given("far", "a"))
				assert.Equal(t, []int{0, 1, 1}, ports.Given("far", "b"))
			}
			for _, measured := range node.Measurements() {
				if aligned, ok := measured.(topology.Aligned); ok {
					require.NoError(t, aligned.Err, "nothing is decided for what is held")
				}
			}
			grown := far.DeepCopy()
			grown.Spec.Containers = append(grown.Spec.Containers, requesting("d", 0, 1), requesting("e", 2, 0))
			require.ErrorContains(t, admit(t, with(topology.PolicySingleNUMANode), grown), topology.ReasonAffinity,
				"a container holds nothing yet")
			require.ErrorContains(t, admit(t, with(topology.PolicySingleNUMANode),
				pod("new", requesting("c", 2, 0), requesting("d", 2, 1))), topology.ReasonAffinity)
		})
	}
}

// Each admission is measured, and with the policy single-numa-node each scope whose hints were merged.
func TestMeasurements(t *testing.T) {
	ports, node := fake.New(port, map[int]int{0: 2, 1: 2}), nodefake.NewNode()
	for _, tc := range []struct {
		policy  string
		aligned bool
	}{{topology.PolicySingleNUMANode, true}, {topology.PolicyRestricted, false}} {
		m := newManagerOf(t, node,
			topology.Options{Policy: policy(t, tc.policy, machine(2), topology.PolicyOptions{})}, ports)
		for units, fits := range map[int64]bool{1: true, 4: false} {
			if tc.policy == topology.PolicyRestricted && !fits {
				continue // it places them on both nodes
			}
			node.Reset()
			err := admit(t, m, pod("a", requesting("c", units, 0)), ports)
			require.Equal(t, fits, err == nil)
			measured := node.Measurements()
			if tc.aligned {
				require.Len(t, measured, 2)
				assert.Equal(t, topology.Aligned{Scope: topology.ScopeContainer, Err: err}, measured[0])
			}
			admitted, ok := measured[len(measured)-1].(topology.Admitted)
			require.True(t, ok)
			assert.Equal(t, err, admitted.Err)
			assert.Equal(t, tc.aligned, len(measured) == 2)
			ports.Refused(pod("a"))
		}
		_, err := m.Admit(lifecycle.AdmitRequest{Pod: pod("a", requesting("c", 9, 0)), Held: pod("a")})
		require.NoError(t, err)
	}
}

// never accepts nothing.
type never struct{ topology.Policy }

func (never) Merge([]map[string][]numa.Hint) (numa.Hint, bool) { return numa.Hint{}, false }

// A policy of one's own can refuse a pod that requests nothing.
func TestPolicyThatRefusesAll(t *testing.T) {
	m := newManager(t, topology.Options{
		Policy: never{policy(t, topology.PolicyRestricted, machine(2), topology.PolicyOptions{})}},
		fake.New(port, nil))
	require.ErrorContains(t, admit(t, m, pod("new", requesting("c", 0, 0))), topology.ReasonAffinity)
}

// broken fails in Allocate.
type broken struct {
	*fake.Provider
	err error
}

func (b broken) Allocate(pod *v1.Pod, c *v1.Container, hint numa.Hint) error {
	if b.err == nil {
		panic("broken")
	}
	return b.err
}

func TestProviderFails(t *testing.T) {
	for _, err := range []error{nil, errors.New("no driver"), lifecycle.Refuse("NotToday", "closed")} {
		ports, gpus := fake.New(port, map[int]int{0: 2}), fake.New(gpu, map[int]int{0: 2})
		m := newManager(t, topology.Options{}, ports, broken{gpus, err})
		if err == nil {
			assert.Panics(t, func() { _ = admit(t, m, pod("a", requesting("c", 1, 1))) })
		} else {
			got := admit(t, m, pod("a", requesting("c", 1, 1)))
			refusal := (*runtime.TerminalError)(nil)
			require.ErrorAs(t, got, &refusal)
			if errors.As(err, &refusal) {
				assert.Equal(t, "NotToday: closed", got.Error())
			} else {
				assert.Equal(t, "UnexpectedAdmissionError: Allocate failed due to no driver, which is unexpected",
					got.Error())
			}
		}
	}
}

func TestBadSettings(t *testing.T) {
	_, err := topology.New(topology.Options{Scope: "node"})
	require.ErrorContains(t, err, `scope "node" must be container or pod`)
	for _, tc := range []struct {
		policy  string
		machine numa.Machine
		opts    topology.PolicyOptions
		err     string
	}{
		{"strict", machine(2), topology.PolicyOptions{}, `policy "strict" must be none, best-effort, restricted or single-numa-node`},
		{topology.PolicyRestricted, machine(9), topology.PolicyOptions{}, "the machine has 9 memory nodes, more than 8"},
		{topology.PolicyRestricted, machine(9), topology.PolicyOptions{MaxAllowable: 9}, ""},
		{topology.PolicyRestricted, machine(9), topology.PolicyOptions{MaxAllowable: 7}, "7 must be at least 8 and at most 16"},
		{topology.PolicyRestricted, machines.Read(t, "offline"), topology.PolicyOptions{PreferClosest: true}, "the distances of memory node 1 are not known"},
		{topology.PolicyRestricted, machines.Read(t, "offline"), topology.PolicyOptions{}, ""},
		{topology.PolicyNone, machine(20), topology.PolicyOptions{}, ""},
	} {
		_, err := topology.NewPolicy(tc.policy, tc.machine, tc.opts)
		if tc.err == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, tc.err)
		}
	}
}

func TestParsePolicyOptions(t *testing.T) {
	o, err := topology.ParsePolicyOptions(map[string]string{"prefer-closest-numa-nodes": "true",
		"max-allowable-numa-nodes": "10"})
	require.NoError(t, err)
	assert.Equal(t, topology.PolicyOptions{PreferClosest: true, MaxAllowable: 10}, o)
	for option, value := range map[string]string{"prefer-closest-numa-nodes": "yes", "max-allowable-numa-nodes": "7",
		"align": "true"} {
		_, err := topology.ParsePolicyOptions(map[string]string{option: value})
		assert.ErrorContains(t, err, option)
	}
	_, err = topology.ParsePolicyOptions(map[string]string{"max-allowable-numa-nodes": "0"})
	assert.Error(t, err)
}

// wholes gives pods their resources as a whole.
type wholes struct {
	*fake.Provider
	given map[types.UID]numa.Nodes
	err   error
}

func (w wholes) AllocatePod(pod *v1.Pod, hint numa.Hint) (done bool, _ error) {
	w.given[pod.UID] = hint.Nodes
	return true, w.err
}

func (w wholes) HasAll(pod *v1.Pod, c *v1.Container) bool {
	_, has := w.given[pod.UID]
	return has || c != nil
}

// With the scope pod and a policy, a provider that gives pods resources as a whole is not asked for their containers;
// the others are, near the same nodes.
func TestPodsAsAWhole(t *testing.T) {
	for _, tc := range []struct {
		policy string
		scope  topology.Scope
		whole  bool
	}{
		{topology.PolicySingleNUMANode, topology.ScopePod, true},
		{topology.PolicySingleNUMANode, topology.ScopeContainer, false},
		{topology.PolicyNone, topology.ScopePod, false},
	} {
		whole := wholes{fake.New(port, map[int]int{0: 2, 1: 4}), map[types.UID]numa.Nodes{}, nil}
		gpus := fake.New(gpu, map[int]int{0: 4, 1: 4})
		with := func(err error) *topology.Manager {
			whole.err = err
			return newManager(t, topology.Options{Policy: policy(t, tc.policy, machine(2), topology.PolicyOptions{}),
				Scope: tc.scope}, whole, gpus)
		}
		p := pod("p", requesting("a", 2, 1), requesting("b", 2, 1))
		require.NoError(t, admit(t, with(nil), p))
		if !tc.whole {
			assert.Empty(t, whole.given)
			assert.NotEmpty(t, whole.Given("p", "a"))
			continue
		}
		assert.Equal(t, map[types.UID]numa.Nodes{"p": numa.Of(1)}, whole.given)
		assert.Empty(t, whole.Given("p", "a"), "as a whole")
		assert.Equal(t, []int{1}, gpus.Given("p", "a"))
		assert.Equal(t, []int{1}, gpus.Given("p", "b"))
		require.ErrorContains(t, admit(t, with(errors.New("no driver")), pod("q", requesting("a", 2, 1))),
			"UnexpectedAdmissionError: Allocate failed due to no driver, which is unexpected")
		large := pod("large", requesting("a", 5, 0))
		require.ErrorContains(t, admit(t, with(nil), large), topology.ReasonAffinity, "it holds nothing yet")
		whole.given["large"] = numa.Of(0, 1)
		require.NoError(t, admit(t, with(nil), pod("large", requesting("a", 5, 0))), topology.ReasonAffinity)
	}
}
