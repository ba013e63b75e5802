package memory

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/memory/internal/state"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

const (
	mi   = 1 << 20
	gi   = 1 << 30
	huge = v1.ResourceHugePagesPrefix + "2Mi"
)

// machine has nodes of 8 GiB, 1 GiB of them in huge pages.
func machine(nodes int) (m numa.Machine) {
	for id := range nodes {
		m.Nodes = append(m.Nodes, numa.Node{ID: id, Memory: 8 * gi, HugePages: map[uint64]uint64{2 * mi: 512, gi: 0}})
	}
	return m
}

func list(amounts ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		out[v1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return out
}

// reserving are options with the reservation of 512 MiB on each node, so that it has 6.5 GiB.
func reserving(nodes int) (opts Options) {
	total := resource.NewQuantity(0, resource.BinarySI)
	for id := range nodes {
		opts.Reserved = append(opts.Reserved, Reservation{Node: id, Limits: list("memory", "512Mi")})
		total.Add(resource.MustParse("512Mi"))
	}
	opts.NodeReserved = v1.ResourceList{v1.ResourceMemory: *total, v1.ResourceCPU: resource.MustParse("1")}
	return opts
}

func newManager(t require.TestingT, path string, nodes int, opts Options) *Manager {
	m, err := New(path, machine(nodes), opts)
	require.NoError(t, err)
	m.held.Write = safefile.Write
	return m
}

// on is a node on which nothing is left of pods without a directory, and of those that are gone.
type on struct {
	lifecycle.NopNode
	root string
	gone func(types.UID) bool
}

func (n on) RootDir() string         { return n.root }
func (n on) Gone(uid types.UID) bool { return n.gone != nil && n.gone(uid) }

func container(name string, amounts ...string) v1.Container {
	l := list(append([]string{"cpu", "1"}, amounts...)...)
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: l, Limits: l}}
}

func sidecar(name string, amounts ...string) v1.Container {
	c := container(name, amounts...)
	c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	return c
}

func pod(uid string, init []v1.Container, main ...v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)},
		Spec:       v1.PodSpec{InitContainers: init, Containers: main},
	}
}

// admit allocates for all containers, and takes everything back if one has no place.
func admit(m *Manager, p *v1.Pod, hint numa.Hint) error {
	for _, c := range podspec.Containers(&p.Spec) {
		if err := m.Allocate(p, c, hint); err != nil {
			m.Refused(p)
			return err
		}
	}
	return nil
}

func start(t require.TestingT, m *Manager, p *v1.Pod, name string) string {
	c, _ := podspec.FindContainer(&p.Spec, name)
	edits, err := m.EditContainer(ctxOf(t), p, c)
	require.NoError(t, err)
	return edits.MemorySet
}

func write(t require.TestingT, m *Manager, p *v1.Pod) {
	_, err := m.Prepare(ctxOf(t), lifecycle.PrepareRequest{Pod: p})
	require.NoError(t, err)
}

func TestGroups(t *testing.T) {
	m := newManager(t, filepath.Join(t.TempDir(), FileName), 3, reserving(3))
	small, large, other := pod("small", nil, container("c", "memory", "2Gi")),
		pod("large", nil, container("c", "memory", "8Gi")), pod("other", nil, container("c", "memory", "8Gi"))
	hints := m.Hints(large, &large.Spec.Containers[0])["memory"]
	assert.Equal(t, []numa.Hint{{Nodes: numa.Of(0, 1), Preferred: true}, {Nodes: numa.Of(0, 2), Preferred: true},
		{Nodes: numa.Of(1, 2), Preferred: true}, {Nodes: numa.Of(0, 1, 2)}}, hints)
	require.NoError(t, admit(m, small, numa.Hint{}))
	assert.Equal(t, []Block{{Nodes: numa.Of(0), Resource: "memory", Size: 2 * gi}}, m.Of("small", "c"))
	assert.Equal(t, []numa.Hint{{Nodes: numa.Of(1, 2), Preferred: true}}, m.Hints(large, nil)["memory"],
		"a node with a block of its own joins no group")
	require.NoError(t, admit(m, large, numa.Hint{Nodes: numa.Of(2), Preferred: true}),
		"the nodes of a hint are extended")
	assert.Equal(t, "1-2", start(t, m, large, "c"))
	assert.Equal(t, []numa.Hint{{Nodes: numa.Of(1, 2), Preferred: true}}, m.Hints(large, nil)["memory"], "what it has")
	assert.Equal(t, []numa.Hint{{Nodes: numa.Of(0), Preferred: true}}, m.Hints(small, nil)["memory"])

	err := admit(m, other, numa.Hint{})
	refusal := (*runtime.TerminalError)(nil)
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, "UnexpectedAdmissionError", refusal.Reason)
	assert.Equal(t, `Allocate failed due to [memorymanager] container "c": no NUMA nodes have enough free memory: `+
		"8589934592 bytes of memory requested, free are 4831838208 on node 0, 0 on node 1, 5368709120 on node 2, "+
		"which is unexpected", refusal.Message)
	assert.Nil(t, m.Hints(other, nil), "as in kubelet")
	err = admit(m, other, numa.Hint{Nodes: numa.Of(7)})
	assert.ErrorContains(t, err, "do not exist")

	require.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: large}))
	require.NoError(t, admit(m, other, numa.Hint{}))
	assert.Equal(t, "1-2", start(t, m, other, "c"))
}

func TestPreferredHintThatNothingPreferredExtends(t *testing.T) {
	m := newManager(t, filepath.Join(t.TempDir(), FileName), 2, reserving(2))
	require.NoError(t, admit(m, pod("a", nil, container("c", "memory", "6Gi")), numa.Hint{Nodes: numa.Of(0)}))
	require.NoError(t, admit(m, pod("b", nil, container("c", "memory", "6Gi")), numa.Hint{Nodes: numa.Of(1)}))
	err := admit(m, pod("c", nil, container("c", "memory", "1Gi")), numa.Hint{Preferred: true})
	assert.ErrorContains(t, err, "no NUMA nodes have enough free memory")
}

func TestHugePages(t *testing.T) {
	m := newManager(t, filepath.Join(t.TempDir(), FileName), 2, reserving(2))
	p := pod("p", nil, container("c", "memory", "1Gi", huge, "1Gi"))
	require.NoError(t, admit(m, p, numa.Hint{Nodes: numa.Of(1)}))
	assert.Equal(t, []Block{{Nodes: numa.Of(1), Resource: huge, Size: gi}, {Nodes: numa.Of(1), Resource: "memory",
		Size: gi}}, m.Of("p", "c"))
	assert.Equal(t, []numa.Hint{{Nodes: numa.Of(0), Preferred: true}},
		m.Hints(pod("q", nil, container("c", "memory", "1Gi", huge, "2Mi")), nil)[huge])
	err := admit(m, pod("r", nil, container("c", "memory", "1Gi", "hugepages-1Gi", "1Gi")), numa.Hint{})
	assert.ErrorContains(t, err, "hugepages-1Gi requested, free are 0 on node 0, 0 on node 1")
	err = admit(m, pod("s", nil, container("c", "memory", "1Gi", "hugepages-4Mi", "4Mi")), numa.Hint{})
	assert.ErrorContains(t, err, "hugepages-4Mi", "the machine has none of the size")
	assert.Equal(t, []Block{
		{numa.Of(0), huge, gi}, {numa.Of(0), "memory", 13 * gi / 2}, {numa.Of(1), huge, gi}, {numa.Of(1), "memory", 13 * gi / 2},
	}, m.Allocatable())
}

func TestOnlyGuaranteedPods(t *testing.T) {
	m := newManager(t, filepath.Join(t.TempDir(), FileName), 2, reserving(2))
	burstable := pod("burstable", nil,
		v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: list("memory", "1Gi")}})
	level := pod("level", nil, container("c", "memory", "1Gi"))
	level.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", "2", "memory", "2Gi"),
		Limits: list("cpu", "2", "memory", "2Gi")}
	for _, p := range []*v1.Pod{burstable, level} {
		assert.Nil(t, m.Hints(p, nil))
		require.NoError(t, admit(m, p, numa.Hint{}))
		assert.Empty(t, start(t, m, p, "c"))
		assert.Empty(t, m.Of(p.UID, "c"))
	}
	_, err := os.Stat(m.path)
	assert.ErrorIs(t, err, os.ErrNotExist, "no file without such a pod")
}

func TestReuse(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	m := newManager(t, path, 1, reserving(1))
	p := pod("p", []v1.Container{container("one", "memory", "2Gi"), sidecar("side", "memory", "1Gi"),
		container("two", "memory", "3Gi")},
		container("a", "memory", "2Gi"), container("b", "memory", "512Mi"))
	require.NoError(t, admit(m, p, numa.Hint{}))
	sizes := func(m *Manager) (out []uint64) {
		for _, c := range podspec.Containers(&p.Spec) {
			size := uint64(0)
			for _, b := range m.Of("p", c.Name) {
				size += b.Size / mi
			}
			out = append(out, size)
		}
		return out
	}
	// one gives the sidecar 1 GiB and two 1 GiB, and two gives all to a and b but half a GiB.
	assert.Equal(t, []uint64{0, 1024, 512, 2048, 512}, sizes(m))
	for _, c := range []string{"one", "side", "two"} {
		assert.Equal(t, "0", start(t, m, p, c), c)
	}
	debugged := p.DeepCopy()
	debugged.Spec.EphemeralContainers = []v1.EphemeralContainer{
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	assert.Empty(t, start(t, m, debugged, "debug"))
	_, err := m.EditContainer(runtime.WithResize(t.Context()), p, &p.Spec.Containers[0])
	require.NoError(t, err)
	assert.Equal(t, []uint64{0, 1024, 512, 2048, 512}, sizes(m), "init containers may run yet")
	start(t, m, p, "a")
	assert.Equal(t, []uint64{0, 1024, 0, 2048, 512}, sizes(m), "the init containers have ended")
	write(t, m, p)
	free := func(m *Manager) uint64 { return m.machine.table(0, "memory").Free }
	assert.EqualValues(t, 3*gi, free(m))

	m = newManager(t, path, 1, reserving(1))
	require.NoError(t, m.Restore())
	assert.Nil(t, m.Hints(p, &p.Spec.InitContainers[0]), "it has ended")
	require.NoError(t, admit(m, p, numa.Hint{}), "again, after a restart")
	assert.Equal(t, []uint64{0, 1024, 0, 2048, 512}, sizes(m))
	require.NoError(t, m.Gone(t.Context(), lifecycle.GoneRequest{Pod: runtime.PodRef{UID: "p"}}))
	assert.EqualValues(t, 13*gi/2, free(m))
}

func TestRefused(t *testing.T) {
	m := newManager(t, filepath.Join(t.TempDir(), FileName), 1, reserving(1))
	p := pod("p", nil, container("c", "memory", "1Gi"))
	require.NoError(t, admit(m, p, numa.Hint{}))
	write(t, m, p)
	m.Refused(p)
	assert.Empty(t, m.Of("p", "c"), "nothing of it runs")
	_, err := m.EditContainer(t.Context(), p, &p.Spec.Containers[0])
	require.ErrorContains(t, err, "was not admitted")
}

// What the state has that is not read yet is given back, too.
func TestRefusedBeforeTheStateIsRead(t *testing.T) {
	path, p := filepath.Join(t.TempDir(), FileName), pod("p", nil, container("c", "memory", "1Gi"))
	m := newManager(t, path, 1, reserving(1))
	require.NoError(t, admit(m, p, numa.Hint{}))
	write(t, m, p)
	m = newManager(t, path, 1, reserving(1))
	m.Refused(p)
	require.NoError(t, m.Restore())
	assert.Empty(t, m.Of("p", "c"))
}

func TestRequests(t *testing.T) {
	p := pod("p", []v1.Container{container("one", "memory", "2Gi"), sidecar("side", "memory", "1Gi"),
		container("two", "memory", "5Gi")},
		container("a", "memory", "2Gi"), container("b", "memory", "1Gi", huge, "2Mi"))
	m := newManager(t, filepath.Join(t.TempDir(), FileName), 4, reserving(4))
	for resource, want := range map[string]int{"memory": 1, huge: 1} {
		assert.Equal(t, want, m.Hints(p, nil)[resource][0].Nodes.Len(), "6 GiB of 6.5, while two runs")
	}
	_, err := requestOf(list("memory", "100m"))
	assert.ErrorContains(t, err, "no number of bytes")
	p.Spec.Resources = &v1.ResourceRequirements{Limits: list("memory", "8Gi", "cpu", "8")}
	assert.Nil(t, m.Hints(p, nil), "the pod as a whole has the resources")
}

func TestResizes(t *testing.T) {
	m := newManager(t, filepath.Join(t.TempDir(), FileName), 1, reserving(1))
	held := pod("p", nil, container("c", "memory", "1Gi"))
	_, err := m.Admit(lifecycle.AdmitRequest{Pod: held, Held: held})
	require.NoError(t, err)
	_, err = m.Admit(lifecycle.AdmitRequest{Pod: pod("p", nil, container("c", "memory", "2Gi"))})
	require.NoError(t, err, "it is new")
	_, err = m.Admit(lifecycle.AdmitRequest{Pod: pod("p", nil, container("c", "memory", "2Gi")), Held: held})
	refusal := (*runtime.TerminalError)(nil)
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, v1.PodReasonInfeasible, refusal.Reason)
}

func TestPinned(t *testing.T) {
	node := nodefake.NewNode()
	m := newManager(t, filepath.Join(t.TempDir(), FileName), 1, reserving(1))
	require.NoError(t, m.Join(node))
	require.NoError(t, admit(m, pod("a", nil, container("c", "memory", "1Gi")), numa.Hint{}))
	require.Error(t, admit(m, pod("b", nil, container("c", "memory", "100Gi")), numa.Hint{}))
	measured := node.Measurements()
	require.Len(t, measured, 2)
	assert.Equal(t, Pinned{}, measured[0])
	assert.Error(t, measured[1].(Pinned).Err)
}

func TestReservations(t *testing.T) {
	for name, c := range map[string]struct {
		reserved []Reservation
		node     v1.ResourceList
		problem  string
	}{
		"none":       {nil, nil, "no memory is reserved for the system"},
		"no node":    {[]Reservation{{5, list("memory", "1Gi")}}, list("memory", "1Gi"), "NUMA node 5, which the machine does not have"},
		"resource":   {[]Reservation{{0, list("memory", "1Gi", "cpu", "1")}}, list("memory", "1Gi"), `"cpu" is reserved`},
		"sum":        {[]Reservation{{0, list("memory", "1Gi")}}, list("memory", "2Gi"), "1Gi of memory is reserved of all NUMA nodes together, and 2Gi by"},
		"huge pages": {[]Reservation{{0, list("memory", "1Gi", huge, "2Mi")}}, list("memory", "1Gi"), "2Mi of hugepages-2Mi is reserved of all NUMA nodes together, and 0 by"},
		"too much":   {[]Reservation{{0, list("memory", "8Gi")}}, list("memory", "8Gi"), "which has 7516192768 bytes"},
		"twice":      {[]Reservation{{0, list("memory", "1Gi")}, {0, list("memory", "1Gi")}}, list("memory", "2Gi"), "more than once"},
		"nothing":    {[]Reservation{{0, list("memory", "0")}}, list("memory", "0"), "no number of bytes"},
		"no size":    {[]Reservation{{0, list("memory", "1Gi", "hugepages-4Mi", "4Mi")}}, list("memory", "1Gi", "hugepages-4Mi", "4Mi"), "hugepages-4Mi is reserved of NUMA node 0, which has none"},
		"fits":       {[]Reservation{{0, list("memory", "1Gi")}, {1, list("memory", "1Gi")}}, list("memory", "2Gi", "cpu", "1"), ""},
	} {
		_, err := New("state", machine(2), Options{Reserved: c.reserved, NodeReserved: c.node})
		if c.problem == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, c.problem, name)
		}
	}
	_, err := New("", numa.Machine{}, Options{})
	assert.ErrorContains(t, err, "path")
	assert.ErrorContains(t, err, "0 NUMA nodes")
}

func TestStates(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	p := pod("p", nil, container("c", "memory", "1Gi"))
	m := newManager(t, path, 2, reserving(2))
	require.NoError(t, admit(m, p, numa.Hint{}))
	write(t, m, p)
	saved, err := os.ReadFile(path)
	require.NoError(t, err)
	change := func(f func(*state.File)) []byte {
		parsed, pods, err := state.Parse(saved)
		require.NoError(t, err)
		f(parsed)
		return state.Format(parsed, pods)
	}
	for name, c := range map[string]struct {
		data    []byte
		problem string
	}{
		"empty":     {nil, "unexpected end"},
		"changed":   {slices.Replace(slices.Clone(saved), 2, 3, 'x'), "checksum"},
		"policy":    {change(func(f *state.File) { f.PolicyName = "BestEffort" }), `the policy "BestEffort"`},
		"memory":    {change(func(f *state.File) { f.MachineState[1].MemoryMap["memory"].TotalMemSize++ }), "8589934593 bytes of memory on NUMA node 1, the machine 8589934592"},
		"reserved":  {change(func(f *state.File) { f.MachineState[1].MemoryMap["memory"].SystemReserved++ }), "the settings"},
		"free":      {change(func(f *state.File) { f.MachineState[0].MemoryMap["memory"].Free++ }), "free bytes"},
		"nodes":     {change(func(f *state.File) { delete(f.MachineState, 1) }), "1 NUMA nodes, the machine 2"},
		"other":     {change(func(f *state.File) { f.MachineState[5] = f.MachineState[1]; delete(f.MachineState, 1) }), "no NUMA node 1"},
		"count":     {change(func(f *state.File) { f.MachineState[0].NumberOfAssignments = 7 }), "counts 7 blocks"},
		"group":     {change(func(f *state.File) { f.MachineState[0].Cells = []int{0, 1} }), "group"},
		"block":     {change(func(f *state.File) { f.Entries["p"]["c"][0].NUMAAffinity = []int{3} }), "NUMA node 3"},
		"no nodes":  {change(func(f *state.File) { f.Entries["p"]["c"][0].NUMAAffinity = nil }), "NUMA nodes []"},
		"resource":  {change(func(f *state.File) { f.Entries["p"]["c"][0].Type = "cpu" }), "cpu on NUMA node 0, which has none"},
		"resources": {change(func(f *state.File) { delete(f.MachineState[0].MemoryMap, huge) }), "resources on NUMA node 0"},
		"null":      {[]byte(`{"policyName":"Static","machineState":{"0":null},"entries":{"p":{"c":null}},"checksum":0}`), "nothing of node 0"},
	} {
		require.NoError(t, os.WriteFile(path, c.data, 0o600), name)
		m := newManager(t, path, 2, reserving(2))
		err := m.Restore()
		wrong := (*StateError)(nil)
		require.ErrorAs(t, err, &wrong, name)
		assert.Equal(t, path, wrong.Path, name)
		assert.ErrorContains(t, err, c.problem, name)
		assert.ErrorContains(t, err, "drain the node", name)
		assert.ErrorContains(t, admit(m, pod("new", nil, container("c", "memory", "1Gi")), numa.Hint{}),
			"cannot be used", name)
		assert.Nil(t, m.Of("p", "c"), name)
		unreadable := len(wrong.Pods) == 0
		assert.Equal(t, slices.Contains([]string{"empty", "changed", "null"}, name), unreadable, name)
		if unreadable {
			assert.ErrorContains(t, admit(m, p, numa.Hint{}), "cannot be used", name)
		}

		opts := reserving(2)
		opts.Reset = true
		m = newManager(t, path, 2, opts)
		require.NoError(t, m.Restore(), name)
		assert.Empty(t, m.Of("p", "c"), name)
		require.NoError(t, admit(m, p, numa.Hint{}), name)
		write(t, m, p)
		data, err := os.ReadFile(path)
		require.NoError(t, err, name)
		assert.Equal(t, string(saved), string(data), name)
	}

	// What no pod holds fits every machine, and pods that are gone hold nothing.
	gone := map[types.UID]bool{"p": true, "q": true}
	opts := reserving(1)
	joined := func(nodes int) *Manager {
		m := newManager(t, path, nodes, opts)
		require.NoError(t, m.Join(on{gone: func(uid types.UID) bool { return gone[uid] }}))
		return m
	}
	m = joined(1)
	require.NoError(t, m.Restore())
	assert.Empty(t, m.Of("p", "c"))
	gone["p"] = false
	assert.ErrorContains(t, joined(1).Restore(), "the machine 1")
	opts = reserving(2)
	m = joined(2)
	require.NoError(t, m.Restore())
	assert.Len(t, m.Of("p", "c"), 1)
	q := pod("q", nil, container("c", "memory", "1Gi"))
	require.NoError(t, admit(m, q, numa.Hint{}))
	write(t, m, q)
	m = joined(2)
	require.NoError(t, m.Restore())
	assert.Len(t, m.Of("p", "c"), 1)
	assert.Empty(t, m.Of("q", "c"), "it is gone")
}

// The state is there as soon as the agent runs.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		m, full := newManager(t, path, 2, reserving(2)), atomic.Bool{}
		m.held.Write = func(path string, data []byte) error {
			if full.Load() {
				return errors.New("no space left on device")
			}
			return safefile.Write(path, data)
		}
		go func() { assert.NoError(t, m.Run(ctx)) }()
		entries := func() map[string]map[string][]state.Block {
			synctest.Wait()
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			f, _, err := state.Parse(data)
			require.NoError(t, err)
			assert.Len(t, f.MachineState, 2)
			return f.Entries
		}
		assert.Empty(t, entries(), "it is written at the start")
		require.ErrorIs(t, m.Run(ctx), runtime.ErrAlreadyRunning)

		p, q := pod("p", nil, container("c", "memory", "1Gi")), pod("q", nil, container("c", "memory", "1Gi"))
		require.NoError(t, errors.Join(admit(m, p, numa.Hint{}), admit(m, q, numa.Hint{})))
		write(t, m, p)
		assert.Len(t, entries(), 2)
		m.Refused(q)
		assert.Len(t, entries(), 1, "a pod that was refused")
		full.Store(true)
		require.NoError(t, m.Ended(ctx, lifecycle.EndedRequest{Pod: p}))
		assert.Len(t, entries(), 1)
		full.Store(false)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, entries(), "it is written again")

		require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
		bad := newManager(t, path, 2, reserving(2))
		go func() { assert.NoError(t, bad.Run(ctx), "pods with memory are refused, others run") }()
		time.Sleep(time.Hour)
	})
}

// With the policy None, nothing is given. The state is removed when nothing is left of its pods, or nothing runs.
func TestLeave(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	left := func() bool {
		t.Helper()
		left, err := StaticLeft(path)
		require.NoError(t, err)
		return left
	}
	assert.False(t, left(), "there is none")
	for name, tc := range map[string]struct {
		opts               Options
		policy, dir        string
		left, drops, stays bool
	}{
		"of the policy None": {Options{}, "None", "p", false, false, true},
		"nothing is left":    {Options{}, policy, "other", true, true, false},
		"it runs":            {Options{}, policy, "p", true, false, true},
		"nothing runs":       {Options{ListPods: func() ([]*runtime.Pod, error) { return nil, nil }}, policy, "p", true, true, false},
		"reset":              {Options{Reset: true}, policy, "p", true, true, false},
		"damaged":            {Options{}, "", "p", true, false, true},
		"damaged and reset":  {Options{Reset: true}, "", "p", true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			data := []byte("x")
			if tc.policy != "" {
				data = state.Format(&state.File{PolicyName: tc.policy,
					Entries: state.ContainerMemoryAssignments{"p": {"c": nil}}}, nil)
			}
			require.NoError(t, os.WriteFile(path, data, 0o600))
			assert.Equal(t, tc.left, left())
			root := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(root, "pods", tc.dir), 0o700))
			tc.opts.Leave = true
			synctest.Test(t, func(t *testing.T) {
				m, err := New(path, numa.Machine{}, tc.opts)
				require.NoError(t, err, "no memory is reserved")
				require.NoError(t, m.Join(on{root: root}))
				_, dropped := m.State()
				assert.Equal(t, tc.drops, dropped)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- m.Run(ctx) }()
				synctest.Wait()
				_, err = os.Stat(path)
				assert.Equal(t, tc.stays, err == nil)
				p := pod("p", nil, container("c", "memory", "1Gi"))
				require.NoError(t, admit(m, p, numa.Hint{}))
				assert.True(t, m.HasAll(p, &p.Spec.Containers[0]))
				assert.Empty(t, start(t, m, p, "c"))
				require.NoError(t, m.Ended(ctx, lifecycle.EndedRequest{Pod: p}))
				synctest.Wait()
				_, err = os.Stat(path)
				assert.Equal(t, tc.policy != policy && tc.stays, err == nil)
				cancel()
				require.NoError(t, <-done)
			})
		})
	}
}

// A disk that is full keeps a pod from starting, and none from ending.
func TestFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	m := newManager(t, filepath.Join(dir, FileName), 1, reserving(1))
	p := pod("p", nil, container("c", "memory", "1Gi"))
	require.NoError(t, admit(m, p, numa.Hint{}))
	_, err := m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: p})
	require.ErrorContains(t, err, "pod ns/p")
	require.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: p}))
	assert.Empty(t, m.Of("p", "c"))
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, m.Gone(t.Context(), lifecycle.GoneRequest{Pod: runtime.RefOf(p)}))
	require.NoError(t, m.held.Save())
	data, err := os.ReadFile(m.path)
	require.NoError(t, err)
	f, _, err := state.Parse(data)
	require.NoError(t, err)
	assert.Empty(t, f.Entries)
	require.NoError(t, errors.Join(m.Restore(), m.Restore()))
}

// The state is that of kubelet 1.36.3 for the same pods on the same machine, and each can be read by the other one, and
// by 1.37.2.
func TestAsKubelet(t *testing.T) {
	kubelets, err := os.ReadFile("internal/state/testdata/kubelet.json")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), FileName)
	pods := []*v1.Pod{
		pod("uid-a", []v1.Container{container("init", "memory", "3Gi")}, container("web", "memory", "2Gi", huge,
			"512Mi"), container("log", "memory", "512Mi")),
		pod("uid-b", nil, container("db", "memory", "5Gi", huge, "1Gi")),
	}
	m := newManager(t, path, 2, reserving(2))
	for _, p := range pods {
		require.NoError(t, admit(m, p, numa.Hint{}))
	}
	write(t, m, pods[0])
	ours, err := os.ReadFile(path)
	require.NoError(t, err)
	parse := func(data []byte) *state.File {
		f, _, err := state.Parse(data)
		require.NoError(t, err)
		for _, containers := range f.Entries {
			for _, blocks := range containers { // kubelet's order is random
				slices.SortFunc(blocks,
					func(a, b state.Block) int { return strings.Compare(string(a.Type), string(b.Type)) })
			}
		}
		return f
	}
	want, got := parse(kubelets), parse(ours)
	assert.Equal(t, want.Entries, got.Entries)
	assert.Equal(t, want.MachineState, got.MachineState)

	require.NoError(t, os.WriteFile(path, kubelets, 0o600))
	m = newManager(t, path, 2, reserving(2))
	require.NoError(t, m.Restore())
	for _, p := range pods {
		require.NoError(t, admit(m, p, numa.Hint{}), "again")
	}
	assert.Equal(t, want.MachineState, m.machine.nodes)
}

// A pod of four containers on a machine of eight nodes.
func BenchmarkAllocate(b *testing.B) {
	m := newManager(b, filepath.Join(b.TempDir(), FileName), 8, reserving(8))
	p := pod("p", nil, container("a", "memory", "1Gi"), container("b", "memory", "1Gi"),
		container("c", "memory", "1Gi", huge, "2Mi"), container("d", "memory", "1Gi"))
	for b.Loop() {
		for i := range p.Spec.Containers {
			hints := m.Hints(p, &p.Spec.Containers[i])["memory"]
			require.NoError(b, m.Allocate(p, &p.Spec.Containers[i], hints[0]))
		}
		m.Refused(p)
	}
}

// Without a hint on a machine of 30 nodes, of which no single one has enough: not all sets of nodes are considered.
func BenchmarkAllocateWithoutHint(b *testing.B) {
	for _, amount := range []string{"20Gi", "1000Gi"} {
		b.Run(amount, func(b *testing.B) {
			m := newManager(b, filepath.Join(b.TempDir(), FileName), 30, reserving(30))
			p := pod("p", nil, container("a", "memory", amount))
			for b.Loop() {
				_ = m.Allocate(p, &p.Spec.Containers[0], numa.Hint{})
				m.Refused(p)
			}
		})
	}
}

// The hints on a machine of 16 nodes, the largest for which there are policies.
func BenchmarkHintsOf16Nodes(b *testing.B) {
	m := newManager(b, filepath.Join(b.TempDir(), FileName), 16, reserving(16))
	p := pod("p", nil, container("a", "memory", "20Gi"))
	for b.Loop() {
		m.Hints(p, &p.Spec.Containers[0])
	}
}
