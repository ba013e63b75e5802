package memory

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/placement/memory/internal/state"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// small is the machine of kubelet's TestStaticPolicyAllocatePod: two nodes of 2 GiB, of which 512 MiB are reserved.
func small() numa.Machine {
	return numa.Machine{Nodes: []numa.Node{{ID: 0, Memory: 2 * gi}, {ID: 1, Memory: 2 * gi}}}
}

// asWhole gives the pod resources as a whole.
func asWhole(p *v1.Pod, amounts ...string) *v1.Pod {
	l := list(append([]string{"cpu", "4"}, amounts...)...)
	p.Spec.Resources = &v1.ResourceRequirements{Requests: l, Limits: l}
	return p
}

// shares returns a container whose requests are not its limits.
func shares(name string) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list("cpu", "1", "memory", "1Mi")}}
}

func sharingSidecar(name string) v1.Container {
	c := shares(name)
	c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	return c
}

// The pods are those of kubelet's TestStaticPolicyAllocatePod, and so is their memory.
func TestPodsAsAWhole(t *testing.T) {
	type containers = []v1.Container
	one, both := numa.Of(1), numa.Of(0, 1)
	for name, tc := range map[string]struct {
		memory     string
		init, main containers
		hint       numa.Nodes
		nodes      numa.Nodes
		sizes      map[string]uint64 // in GiB
		free       uint64            // in MiB
	}{
		"less than the pod":          {"1Gi", nil, containers{container("a", "memory", "512Mi")}, one, one, map[string]uint64{"a": gi / 2}, 2048},
		"the nodes of the hint grow": {"2Gi", nil, containers{container("a", "memory", "1Gi")}, one, both, map[string]uint64{"a": gi}, 1024},
		"shares":                     {"2Gi", nil, containers{shares("a"), shares("b")}, both, both, map[string]uint64{"a": 2 * gi, "b": 2 * gi}, 1024},
		"mixed": {"2Gi", nil, containers{container("a", "memory", "1Gi"), shares("b"), shares("c")}, both, both,
			map[string]uint64{"a": gi, "b": gi, "c": gi}, 1024},
		"init": {"2Gi", containers{container("i", "memory", "2Gi")}, containers{container("a", "memory", "1Gi"), shares("b")}, both, both,
			map[string]uint64{"i": 2 * gi, "a": gi, "b": gi}, 1024},
		"sharing init": {"2Gi", containers{shares("i")}, containers{container("a", "memory", "1Gi"), shares("b")}, 0, both,
			map[string]uint64{"i": 2 * gi, "a": gi, "b": gi}, 1024},
		"sidecar": {"3Gi", containers{shares("i"), sidecar("s", "memory", "1Gi"), shares("j")},
			containers{container("a", "memory", "1Gi"), shares("b")}, both, both,
			map[string]uint64{"i": 3 * gi, "s": gi, "j": 2 * gi, "a": gi, "b": gi}, 0},
		"sharing sidecar": {"3Gi", containers{shares("i"), sharingSidecar("s"), shares("j")},
			containers{container("a", "memory", "1Gi"), shares("b")}, both, both,
			map[string]uint64{"i": 3 * gi, "s": 2 * gi, "j": 3 * gi, "a": gi, "b": 2 * gi}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), FileName)
			open := func(wholePods bool) *Manager {
				opts := reserving(2)
				opts.WholePods = wholePods
				m, err := New(path, small(), opts)
				require.NoError(t, err)
				require.NoError(t, m.Restore())
				return m
			}
			m := open(true)
			p := asWhole(pod("p", tc.init, tc.main...), "memory", tc.memory)
			check := func() {
				t.Helper()
				total, _ := requestOfPod(p)
				assert.Equal(t, []Block{{tc.nodes, "memory", total["memory"]}}, m.OfPod("p"))
				for name, size := range tc.sizes {
					assert.Equal(t, []Block{{tc.nodes, "memory", size}}, m.Of("p", name), name)
				}
				free := uint64(0)
				for id := range m.machine.nodes {
					free += m.machine.table(id, "memory").Free
					if tc.nodes.Has(id) {
						assert.Equal(t, 1, m.machine.nodes[id].NumberOfAssignments)
						assert.Equal(t, tc.nodes, numa.Of(m.machine.nodes[id].Cells...))
					}
				}
				assert.Equal(t, tc.free, free/mi)
			}
			done, err := m.AllocatePod(p, numa.Hint{Nodes: tc.hint, Preferred: tc.hint != 0})
			require.NoError(t, err)
			assert.True(t, done)
			check()
			write(t, m, p)
			saved, err := os.ReadFile(path)
			require.NoError(t, err)

			for _, wholePods := range []bool{true, false} { // the next agents
				m = open(wholePods)
				if wholePods {
					assert.Equal(t, map[string][]numa.Hint{"memory": {{Nodes: tc.nodes, Preferred: true}}}, m.Hints(p, nil))
				}
				done, err = m.AllocatePod(p, numa.Hint{})
				require.NoError(t, err)
				assert.Equal(t, wholePods, done)
				if !done {
					require.NoError(t, admit(m, p, numa.Hint{}))
				}
				check()
				write(t, m, p)
				again, err := os.ReadFile(path)
				require.NoError(t, err)
				assert.Equal(t, string(saved), string(again))
			}
			for _, c := range podspec.Containers(&p.Spec) { // also without the option
				assert.Equal(t, tc.nodes.String(), start(t, m, p, c.Name))
			}
			for i := range tc.init {
				if !podspec.IsSidecar(&tc.init[i]) {
					assert.Empty(t, m.Of("p", tc.init[i].Name), "it has ended")
				}
			}
			write(t, m, p)
			m = open(true)
			done, err = m.AllocatePod(p, numa.Hint{})
			require.NoError(t, err)
			assert.True(t, done, "without the init containers that have ended")
			require.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: p}))
			assert.Equal(t, m.empty(), m.machine)
		})
	}
}

// The pods are those of kubelet's TestValidatePodScopeResources.
func TestPoolsThatAreEmpty(t *testing.T) {
	type containers = []v1.Container
	own := func(name, memory string) v1.Container { return container(name, "memory", memory) }
	for i, tc := range []struct {
		memory     string
		init, main containers
		message    string
	}{
		{"2Gi", nil, containers{own("a", "1Gi"), shares("b")}, ""},
		{"2Gi", nil, containers{own("a", "1Gi"), own("b", "1Gi")}, ""},
		{"2Gi", nil, containers{shares("a"), shares("b")}, ""},
		{"6Gi", nil, containers{own("a", "3Gi"), own("b", "2Gi"), shares("c"), shares("d")}, ""},
		{"5Gi", nil, containers{own("a", "3Gi"), own("b", "2Gi"), shares("c")},
			"pod rejected, sum of exclusive container memory requests equals pod budget, leaving no memory for shared containers: both are 5368709120 bytes; request more for the pod as a whole"},
		{"2Gi", containers{own("i", "1Gi"), sidecar("s", "memory", "1Gi")}, containers{shares("a")}, ""},
		{"2Gi", containers{sidecar("s", "memory", "1Gi")}, containers{own("a", "1Gi")}, ""},
		{"2Gi", containers{sidecar("s", "memory", "2Gi"), shares("i")}, nil,
			`pod rejected, pod has shared init containers but no memory available for them: the sidecars before "i" have all of it; request more for the pod as a whole`},
		{"2Gi", containers{shares("i"), sidecar("s", "memory", "2Gi")}, nil, ""},
		{"2Gi", containers{own("i", "2Gi"), sidecar("s", "memory", "2Gi")}, nil, ""},
		{"2Gi", containers{sidecar("s", "memory", "2Gi"), sharingSidecar("t")}, nil,
			"pod rejected, sum of exclusive container memory requests equals pod budget, leaving no memory for shared containers: both are 2147483648 bytes; request more for the pod as a whole"},
	} {
		opts := reserving(2)
		opts.WholePods = true
		m := newManager(t, filepath.Join(t.TempDir(), FileName), 2, opts)
		p := asWhole(pod("p", tc.init, tc.main...), "memory", tc.memory)
		require.NoError(t, m.Restore())
		hints := m.Hints(p, nil)["memory"]
		_, err := m.AllocatePod(p, numa.Hint{})
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
		assert.Equal(t, m.empty(), m.machine)
	}
}

// Huge pages of the pod, requests that the pod does not have, and pods for which there is no place.
func TestRequestsOfPodsAsAWhole(t *testing.T) {
	opts := reserving(2)
	opts.WholePods = true
	m := newManager(t, filepath.Join(t.TempDir(), FileName), 2, opts)
	p := asWhole(pod("p", nil, container("a", "memory", "1Gi", huge, "256Mi"), shares("b")), "memory", "3Gi", huge, "512Mi")
	done, err := m.AllocatePod(p, numa.Hint{Nodes: numa.Of(1)})
	require.NoError(t, err)
	require.True(t, done)
	assert.True(t, m.HasAll(p, nil))
	one := numa.Of(1)
	assert.Equal(t, []Block{{one, huge, 512 * mi}, {one, "memory", 3 * gi}}, m.OfPod("p"))
	assert.Equal(t, []Block{{one, huge, 256 * mi}, {one, "memory", gi}}, m.Of("p", "a"))
	assert.Equal(t, []Block{{one, huge, 256 * mi}, {one, "memory", 2 * gi}}, m.Of("p", "b"))

	more := asWhole(p.DeepCopy(), "memory", "4Gi", huge, "512Mi")
	_, err = m.Admit(lifecycle.AdmitRequest{Pod: more, Held: p})
	require.ErrorContains(t, err, "Resize is infeasible")
	_, err = m.Admit(lifecycle.AdmitRequest{Pod: p, Held: p})
	require.NoError(t, err)

	refusal := (*runtime.TerminalError)(nil)
	_, err = m.AllocatePod(asWhole(pod("large", nil, shares("a")), "memory", "12Gi"), numa.Hint{})
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, "UnexpectedAdmissionError", refusal.Reason)
	assert.Contains(t, refusal.Message, "the pod as a whole: no NUMA nodes have enough free memory")
	_, err = m.AllocatePod(asWhole(pod("parts", nil, container("a", "memory", "2Gi")), "memory", "1Gi"), numa.Hint{})
	require.ErrorContains(t, err, `container "a" requests 2147483648 bytes of memory, and the pod as a whole has 1073741824 left`)
	assert.False(t, m.HasAll(asWhole(pod("new", nil, shares("a")), "memory", "1Gi"), nil))

	burstable := asWhole(pod("burstable", nil, container("a", "memory", "1Gi")), "memory", "1Gi")
	burstable.Spec.Resources.Limits = list("memory", "2Gi")
	for _, other := range []*v1.Pod{burstable, pod("other", nil, container("a", "memory", "1Gi"))} {
		done, err = m.AllocatePod(other, numa.Hint{})
		require.NoError(t, err)
		assert.False(t, done)
		assert.True(t, m.HasAll(other, nil))
	}
}

// By its containers, only a container with equal requests and limits gets memory. A pod that has some that way keeps it
// when pods are placed as a whole.
func TestPodsAsAWholeByContainers(t *testing.T) {
	opts := reserving(2)
	opts.WholePods = true
	path := filepath.Join(t.TempDir(), FileName)
	m := newManager(t, path, 2, opts)
	p := asWhole(pod("p", nil, container("a", "memory", "1Gi"), shares("b")), "memory", "3Gi")
	none := asWhole(pod("none", nil, shares("b")), "memory", "3Gi")
	require.NoError(t, admit(m, p, numa.Hint{Nodes: numa.Of(1)}))
	require.NoError(t, admit(m, none, numa.Hint{}))
	write(t, m, p)
	assert.Equal(t, "1", start(t, m, p, "a"))
	assert.Empty(t, start(t, m, p, "b"))
	assert.Empty(t, start(t, m, none, "b"))
	m = newManager(t, path, 2, opts)
	done, err := m.AllocatePod(p, numa.Hint{})
	require.NoError(t, err)
	assert.False(t, done)
	assert.True(t, m.HasAll(p, nil))
	require.NoError(t, admit(m, p, numa.Hint{}))
	assert.Equal(t, "1", start(t, m, p, "a"))
	assert.Empty(t, m.OfPod("p"))
	_, err = m.EditContainer(t.Context(), asWhole(pod("new", nil, container("a", "memory", "1Gi")), "memory", "1Gi"), &p.Spec.Containers[0])
	require.ErrorContains(t, err, "was not admitted")
}

// The state of kubelet 1.37.2 with a pod that has memory as a whole is taken over and written as it is, with the option
// and without.
func TestPodsAsAWholeOfKubelet(t *testing.T) {
	kubelets, err := os.ReadFile("internal/state/testdata/pods-1.37.json")
	require.NoError(t, err)
	for _, wholePods := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), FileName)
		require.NoError(t, os.WriteFile(path, kubelets, 0o600))
		opts := reserving(2)
		opts.WholePods = wholePods
		m := newManager(t, path, 2, opts)
		require.NoError(t, m.Restore())
		p := asWhole(pod("uid-b", nil, container("db", "memory", "5Gi", huge, "1Gi")), "memory", "5Gi", huge, "1Gi")
		_, err := m.AllocatePod(p, numa.Hint{Nodes: numa.Of(1)})
		require.NoError(t, err)
		require.NoError(t, admit(m, p, numa.Hint{}))
		assert.Equal(t, []Block{{numa.Of(0), "memory", 5 * gi}, {numa.Of(0), huge, gi}}, m.OfPod("uid-b"))
		assert.Equal(t, "0", start(t, m, p, "db"))
		write(t, m, p)
		ours, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(kubelets), string(ours))
	}
}

// What a pod has as a whole must be on nodes of the machine, as what a container has.
func TestPodsThatDoNotFit(t *testing.T) {
	opts := reserving(2)
	opts.WholePods = true
	path := filepath.Join(t.TempDir(), FileName)
	m := newManager(t, path, 2, opts)
	p := asWhole(pod("p", nil, shares("a")), "memory", "3Gi")
	_, err := m.AllocatePod(p, numa.Hint{})
	require.NoError(t, err)
	write(t, m, p)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for problem, change := range map[string]func(f *state.File, pods state.PodMemoryAssignments){
		"pod p as a whole: it has memory on NUMA node 7": func(_ *state.File, pods state.PodMemoryAssignments) {
			pods["p"].MemoryBlocks[0].NUMAAffinity = []int{7}
		},
		`container "a" of pod p: it has memory on NUMA node 7`: func(f *state.File, _ state.PodMemoryAssignments) {
			f.Entries["p"]["a"][0].NUMAAffinity = []int{7}
		},
		"free bytes of memory": func(_ *state.File, pods state.PodMemoryAssignments) {
			pods["p"].MemoryBlocks[0].Size++
		},
		// kubelet ignores what a pod without containers has, too
		"it counts 1 blocks on NUMA node 0": func(f *state.File, _ state.PodMemoryAssignments) {
			f.Entries["q"] = f.Entries["p"]
			delete(f.Entries, "p")
			f.Entries["q"]["a"] = nil
		},
	} {
		f, pods, err := state.Parse(slices.Clone(data))
		require.NoError(t, err)
		change(f, pods)
		require.NoError(t, os.WriteFile(path, state.Format(f, pods), 0o600))
		m := newManager(t, path, 2, opts)
		err = m.Restore()
		require.ErrorContains(t, err, problem)
		require.True(t, errors.As(err, new(*StateError)))
	}
}

// Memory of an init container that has ended is not taken again, also if no other container has some.
func TestInitContainersOfPodsAsAWhole(t *testing.T) {
	opts := reserving(1)
	opts.WholePods = true
	path := filepath.Join(t.TempDir(), FileName)
	m := newManager(t, path, 1, opts)
	p := asWhole(pod("p", []v1.Container{container("i", "memory", "2Gi"), container("j", "memory", "2Gi")}, shares("a")), "memory", "3Gi")
	require.NoError(t, admit(m, p, numa.Hint{}))
	for _, name := range []string{"i", "j"} {
		assert.Equal(t, "0", start(t, m, p, name))
	}
	for range 2 {
		assert.Empty(t, start(t, m, p, "a"))
	}
	write(t, m, p)
	require.NoError(t, admit(m, pod("large", nil, container("a", "memory", "6Gi")), numa.Hint{}), "in its place")
	write(t, m, p)
	m = newManager(t, path, 1, opts)
	require.NoError(t, m.Restore())
	for _, c := range podspec.Containers(&p.Spec) {
		assert.True(t, m.HasAll(p, c))
		assert.Nil(t, m.Hints(p, c))
		assert.Empty(t, m.Of("p", c.Name))
	}
	require.NoError(t, admit(m, p, numa.Hint{}))
	require.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: p}))
	assert.NotContains(t, m.machine.entries, "p")
}
