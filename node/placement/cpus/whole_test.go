package cpus_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// dualSocket is the machine of kubelet's tests with that name: 12 CPUs, two of a core, on two sockets and nodes.
func dualSocket() (m numa.Machine) {
	for id := range 12 {
		m.CPUs = append(m.CPUs, numa.CPU{ID: id, Core: id % 6, Socket: id % 2, Node: id % 2, UncoreCache: id % 2})
	}
	m.Nodes = []numa.Node{{ID: 0}, {ID: 1}}
	return m
}

// asWhole gives the pod resources as a whole.
func asWhole(p *v1.Pod, cpu string) *v1.Pod {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("8Gi")}
	p.Spec.Resources = &v1.ResourceRequirements{Requests: list, Limits: list}
	return p
}

// sharing returns a container that requests no CPU.
func sharing(name string) v1.Container {
	list := v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi")}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list, Limits: list}}
}

// sets returns the CPUs that containers are created with.
func sets(t *testing.T, m *cpus.Manager, p *v1.Pod) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, c := range podspec.Containers(&p.Spec) {
		edits, err := m.EditContainer(t.Context(), p, c)
		require.NoError(t, err)
		out[c.Name] = edits.CPUSet
	}
	return out
}

// The pods are those of kubelet's TestStaticPolicyAllocatePod, and so are their CPUs.
func TestPodsAsAWhole(t *testing.T) {
	type pod = []testpod.Option
	for name, tc := range map[string]struct {
		cpu    string
		pod    pod
		want   map[string]string
		shared string
		// own are the containers with CPUs of their own; noQuota means that this is all.
		own     string
		noQuota bool
	}{
		"less than the pod": {"2", pod{testpod.Container(requesting("a", "1"))}, map[string]string{"a": "2"}, "0-1,3-7,9-11", "a", true},
		"shares":            {"1", pod{testpod.Container(sharing("a"))}, map[string]string{"a": "6"}, "0-5,7-11", "", false},
		"mixed": {"3", pod{testpod.Container(requesting("a", "1"), requesting("b", "1"), sharing("c"))},
			map[string]string{"a": "6", "b": "2", "c": "8"}, "0-1,3-5,7,9-11", "ab", false},
		"init": {"2", pod{testpod.Init(requesting("i", "1"), requesting("j", "1")), testpod.Container(requesting("a", "1"), requesting("b", "1"))},
			map[string]string{"i": "2", "j": "2", "a": "2", "b": "8"}, "0-1,3-7,9-11", "ijab", true},
		"sidecar": {"3", pod{testpod.Init(sharing("i")), testpod.Sidecar(requesting("s", "1")), testpod.Init(sharing("j")),
			testpod.Container(requesting("a", "1"), sharing("b"))},
			map[string]string{"i": "2,6,8", "s": "6", "j": "2,8", "a": "2", "b": "8"}, "0-1,3-5,7,9-11", "sa", false},
		"sharing sidecar": {"3", pod{testpod.Init(sharing("i")), testpod.Sidecar(sharing("s")), testpod.Init(sharing("j")),
			testpod.Container(requesting("a", "1"), sharing("b"))},
			map[string]string{"i": "2,6,8", "s": "2,8", "j": "2,6,8", "a": "6", "b": "2,8"}, "0-1,3-5,7,9-11", "a", false},
		"a fraction of the pod": {"2500m", pod{testpod.Container(requesting("a", "1"))}, map[string]string{"a": "0-11"}, "0-11", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), cpus.CheckpointName)
			start := func(wholePods bool) *cpus.Manager {
				m, err := cpus.New(dualSocket(), path, &setter{}, cpus.Options{Reserved: cpuset.New(0), WholePods: wholePods})
				require.NoError(t, err)
				m.WithoutSync(plain)
				require.NoError(t, m.Restore())
				return m
			}
			m := start(true)
			p := asWhole(testpod.New("p", append(tc.pod, testpod.UID("p"))...), tc.cpu)
			check := func() {
				t.Helper()
				assert.Equal(t, tc.want, sets(t, m, p))
				assert.Equal(t, tc.shared, m.Shared().String())
				own := ""
				for _, c := range podspec.Containers(&p.Spec) {
					edits, err := m.EditContainer(t.Context(), p, c)
					require.NoError(t, err)
					if edits.NoCPUQuota {
						assert.Equal(t, edits.CPUSet, m.Exclusive("p", c.Name).String())
						own += c.Name
					} else {
						assert.Empty(t, m.Exclusive("p", c.Name).List())
					}
				}
				assert.Equal(t, tc.own, own)
				assert.Equal(t, tc.noQuota, m.NoCPUQuota(p))
			}
			done, err := m.AllocatePod(p, numa.Hint{})
			require.NoError(t, err)
			assert.True(t, done)
			check()
			require.NoError(t, prepare(t, m, p))
			saved, err := os.ReadFile(path)
			if tc.shared != "0-11" {
				require.NoError(t, err)
			}

			for _, wholePods := range []bool{true, false} { // the next agents
				m = start(wholePods)
				done, err = m.AllocatePod(p, numa.Hint{})
				require.NoError(t, err)
				assert.Equal(t, wholePods, done)
				if !done {
					allocate(t, m, p)
				}
				check()
				require.NoError(t, prepare(t, m, p))
				again, _ := os.ReadFile(path)
				assert.Equal(t, string(saved), string(again))
			}
			end(t, m, p)
			assert.Equal(t, "0-11", m.Shared().String())
			done, err = m.AllocatePod(p, numa.Hint{})
			require.NoError(t, err)
			assert.False(t, done, "without the option")
			allocate(t, m, p)
			assert.False(t, m.HasExclusive("p"))
		})
	}
}

// The pods are those of kubelet's TestValidatePodScopeResources.
func TestPoolsThatAreEmpty(t *testing.T) {
	type pod = []testpod.Option
	for i, tc := range []struct {
		cpu     string
		pod     pod
		message string
	}{
		{"4", pod{testpod.Container(requesting("a", "2"), sharing("b"))}, ""},
		{"4", pod{testpod.Container(requesting("a", "2"), requesting("b", "2"))}, ""},
		{"4", pod{testpod.Container(sharing("a"), sharing("b"))}, ""},
		{"6", pod{testpod.Container(requesting("a", "3"), requesting("b", "2"), requesting("c", "500m"), sharing("d"))}, ""},
		{"5", pod{testpod.Container(requesting("a", "3"), requesting("b", "2"), sharing("c"))},
			"pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers: both are 5; request more for the pod as a whole"},
		{"2", pod{testpod.Init(requesting("i", "1")), testpod.Sidecar(requesting("s", "1")), testpod.Container(sharing("a"))}, ""},
		{"2", pod{testpod.Init(requesting("i", "2")), testpod.Container(requesting("a", "2"))}, ""},
		{"2", pod{testpod.Sidecar(requesting("s", "2")), testpod.Init(sharing("i"))},
			`pod rejected, pod has shared init containers but no cpus available for them: the sidecars before "i" have all 2; request more for the pod as a whole`},
		{"2", pod{testpod.Init(sharing("i")), testpod.Sidecar(requesting("s", "2"))}, ""},
		{"2", pod{testpod.Sidecar(requesting("s", "2")), testpod.Sidecar(sharing("t"))},
			"pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers: both are 2; request more for the pod as a whole"},
	} {
		p := asWhole(testpod.New("p", append(tc.pod, testpod.UID("p"))...), tc.cpu)
		m, err := cpus.New(dualSocket(), "unused", &setter{}, cpus.Options{Reserved: cpuset.New(0), WholePods: true})
		require.NoError(t, err)
		hints := m.Hints(p, nil)["cpu"]
		_, err = m.AllocatePod(p, numa.Hint{})
		if tc.message == "" {
			require.NoError(t, err, i)
			assert.NotEmpty(t, hints)
			continue
		}
		refusal := (*runtime.TerminalError)(nil)
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, "EmptyPodSharedPoolError", refusal.Reason)
		assert.Equal(t, tc.message, refusal.Message)
		assert.Equal(t, []numa.Hint{}, hints, "a policy that refuses pods refuses it")
		assert.False(t, m.HasExclusive("p"))
	}
}

func TestWholeCoresOfPods(t *testing.T) {
	m, err := cpus.New(dualSocket(), "unused", &setter{}, cpus.Options{Reserved: cpuset.New(0, 6), WholePods: true,
		PolicyOptions: options(t, cpus.OptionFullPCPUsOnly)})
	require.NoError(t, err)
	p := asWhole(testpod.New("p", testpod.UID("p"), testpod.Container(requesting("a", "3"))), "3")
	_, err = m.AllocatePod(p, numa.Hint{})
	require.ErrorContains(t, err, "SMTAlignmentError: SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2")
	p = asWhole(testpod.New("p", testpod.UID("p"), testpod.Container(requesting("a", "2"), requesting("b", "2"))), "4")
	_, err = m.AllocatePod(p, numa.Hint{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a": "2,8", "b": "4,10"}, sets(t, m, p))
	_, err = m.AllocatePod(asWhole(testpod.New("q", testpod.UID("q"), testpod.Container(sharing("a"))), "8"), numa.Hint{})
	require.ErrorContains(t, err, "available physical CPUs = 6, requested CPUs = 8")
}

// A pod that is not Guaranteed, or has no resources as a whole, gets nothing as a whole.
func TestOtherPodsAsAWhole(t *testing.T) {
	m, err := cpus.New(dualSocket(), "unused", &setter{}, cpus.Options{Reserved: cpuset.New(0), WholePods: true})
	require.NoError(t, err)
	p := asWhole(testpod.New("p", testpod.UID("p"), testpod.Container(requesting("a", "1"))), "2")
	p.Spec.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3"), v1.ResourceMemory: resource.MustParse("8Gi")}
	done, err := m.AllocatePod(p, numa.Hint{})
	require.NoError(t, err)
	assert.True(t, done)
	assert.Equal(t, map[string]string{"a": "0-11"}, sets(t, m, p))
	assert.Nil(t, m.Hints(p, nil))
	done, err = m.AllocatePod(guaranteed("q", 2), numa.Hint{})
	require.NoError(t, err)
	assert.False(t, done)
	assert.True(t, m.HasAll(p, nil))
	assert.True(t, m.HasAll(guaranteed("q", 2), nil))
}

// By its containers, each container with equal requests and limits gets CPUs, and the others none. The scope may change
// when an agent starts, and no container loses what it has.
func TestPodsAsAWholeByContainers(t *testing.T) {
	path := filepath.Join(t.TempDir(), cpus.CheckpointName)
	node := nodefake.NewNode()
	var m *cpus.Manager
	start := func(policy string, scope topology.Scope) *topology.Manager {
		var err error
		m, err = cpus.New(dualSocket(), path, &setter{}, cpus.Options{Reserved: cpuset.New(0), WholePods: true})
		require.NoError(t, err)
		m.WithoutSync(plain)
		p, err := topology.NewPolicy(policy, dualSocket(), topology.PolicyOptions{})
		require.NoError(t, err)
		manager, err := topology.New(topology.Options{Policy: p, Scope: scope})
		require.NoError(t, err)
		node.SetComponents(m)
		require.NoError(t, manager.Join(node))
		return manager
	}
	admit := func(manager *topology.Manager, p *v1.Pod) error {
		_, err := manager.Admit(lifecycle.AdmitRequest{Pod: p})
		if err == nil {
			require.NoError(t, prepare(t, m, p))
		}
		return err
	}
	pod := func(uid string) *v1.Pod {
		return asWhole(testpod.New(uid, testpod.UID(types.UID(uid)),
			testpod.Container(requesting("a", "2"), sharing("b"), requesting("c", "1500m"))), "4")
	}
	byContainers, byPod := pod("containers"), pod("pod")
	require.NoError(t, admit(start(topology.PolicySingleNUMANode, topology.ScopeContainer), byContainers))
	assert.Equal(t, map[string]string{"a": "2,8", "b": "0-1,3-7,9-11", "c": "0-1,3-7,9-11"}, sets(t, m, byContainers))
	assert.False(t, m.NoCPUQuota(byContainers))

	require.NoError(t, admit(start(topology.PolicySingleNUMANode, topology.ScopePod), byContainers))
	assert.Equal(t, "2,8", m.Exclusive("containers", "a").String(), "it keeps what it has")
	assert.Empty(t, m.OfPod("containers").List())
	require.NoError(t, admit(start(topology.PolicySingleNUMANode, topology.ScopePod), byPod))
	want := map[string]string{"a": "1,7", "b": "3,9", "c": "3,9"}
	assert.Equal(t, want, sets(t, m, byPod))
	assert.Equal(t, []numa.Hint{{Nodes: numa.Of(1), Preferred: true}}, m.Hints(byPod, nil)["cpu"][:1])
	for _, scope := range []topology.Scope{topology.ScopePod, topology.ScopeContainer} {
		for _, policy := range []string{topology.PolicyNone, topology.PolicyRestricted} {
			require.NoError(t, admit(start(policy, scope), byPod), "again, as after a restart")
			assert.Equal(t, want, sets(t, m, byPod))
			assert.Equal(t, "1,3,7,9", m.OfPod("pod").String())
		}
	}
	err := admit(start(topology.PolicySingleNUMANode, topology.ScopePod), pod("third"))
	require.ErrorContains(t, err, topology.ReasonAffinity, "2 CPUs are free on each node")
	held := byPod.DeepCopy()
	require.NoError(t, admit(start(topology.PolicySingleNUMANode, topology.ScopePod), byPod))
	byPod.Spec.Resources = asWhole(byPod.DeepCopy(), "5").Spec.Resources
	_, err = m.Admit(lifecycle.AdmitRequest{Pod: byPod, Held: held})
	require.ErrorContains(t, err, "Resize is infeasible")
	assert.Equal(t, map[string][]numa.Hint{"cpu": {}}, m.Hints(byPod, nil), "it cannot be served")
	assert.False(t, m.HasAll(byPod, nil))
}

// A checkpoint in which a pod has CPUs as a whole that do not go with the machine, or its containers have others.
func TestPodsThatDoNotGoWithTheMachine(t *testing.T) {
	for _, tc := range []struct{ ofPod, main, problem string }{
		{"11-12", "11", "pod p has CPUs 11-12, of which 12 are not online"},
		{"2,8", "4", "container main of pod p has CPUs 4, and the pod 2,8"},
		{"0,2", "2", "pod p has CPUs 0,2, of which 0 are reserved"},
	} {
		path := checkpoint(t, cpus.Checkpoint{Policy: "static", Shared: set(t, "0-1,3,5-7,9-11"),
			Exclusive: cpus.Assignments{"p": {"main": set(t, tc.main)}}, Pods: map[string]cpuset.CPUSet{"p": set(t, tc.ofPod)}})
		for _, reset := range []bool{false, true} {
			m, err := cpus.New(dualSocket(), path, &setter{}, cpus.Options{Reserved: cpuset.New(0), WholePods: true, Reset: reset})
			require.NoError(t, err)
			m.WithoutSync(plain)
			err = m.Restore()
			p := asWhole(testpod.New("p", testpod.UID("p"), testpod.Container(requesting("main", "1"))), "2")
			done, allocation := m.AllocatePod(p, numa.Hint{})
			require.NoError(t, allocation)
			assert.True(t, done)
			if reset {
				require.NoError(t, err)
				assert.Equal(t, "2,8", m.OfPod("p").String(), "it gets CPUs anew")
				continue
			}
			require.ErrorContains(t, err, tc.problem)
			assert.NotContains(t, m.Shared().List(), set(t, tc.ofPod).List()[0], "others are kept off")
			assert.Equal(t, map[string]string{"main": tc.main}, sets(t, m, p), fmt.Sprint("it keeps what it has: ", tc))
			q := asWhole(testpod.New("q", testpod.UID("q"), testpod.Container(requesting("main", "1"))), "2")
			_, allocation = m.AllocatePod(q, numa.Hint{})
			require.ErrorAs(t, allocation, new(*cpus.StateError))
		}
	}
}

// The status of a container that shares the CPUs of its pod is left as it is; one of its own has their number as limit.
func TestLimitsOfPodsAsAWhole(t *testing.T) {
	m, err := cpus.New(dualSocket(), "unused", &setter{}, cpus.Options{Reserved: cpuset.New(0), WholePods: true})
	require.NoError(t, err)
	p := asWhole(testpod.New("p", testpod.UID("p"), testpod.Container(requesting("main", "1"), sharing("other"))), "3")
	_, err = m.AllocatePod(p, numa.Hint{})
	require.NoError(t, err)
	observed := status(p, "1", runtime.ContainerRunning)
	observed.Containers[0].Resources = &v1.ResourceRequirements{}
	observed.Containers = append(observed.Containers, observed.Containers[0])
	observed.Containers[1].Name = "other"
	got, err := m.Inspector(inspector{observed}).InspectPod(t.Context(), runtime.RefOf(p))
	require.NoError(t, err)
	assert.Equal(t, int64(1), got.Containers[0].Resources.Limits.Cpu().Value())
	assert.Empty(t, got.Containers[1].Resources.Limits)
}
