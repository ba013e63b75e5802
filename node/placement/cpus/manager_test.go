package cpus_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/internal/machines"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// setter is a runtime whose containers have sets.
type setter struct {
	mu   sync.Mutex
	sets map[string]string
	err  error
	// hangs is the container for which it does not return.
	hangs string
	// calls counts.
	calls int
}

func (s *setter) hang(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = id
}

func (s *setter) SetCPUSet(ctx context.Context, id runtime.ContainerID, list string) error {
	s.mu.Lock()
	hangs := s.hangs == id.ID
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.err != nil {
		return s.err
	}
	if s.sets == nil {
		s.sets = map[string]string{}
	}
	s.sets[id.ID] = list
	return nil
}

func (s *setter) of(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sets[id]
}

func (s *setter) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// requesting returns a container that requests CPU and memory, both as limits too.
func requesting(name, cpu string) v1.Container {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("1Gi")}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list, Limits: list}}
}

// guaranteed returns a Guaranteed pod with one container, main.
func guaranteed(name string, n int64) *v1.Pod {
	return testpod.New(name, testpod.UID(types.UID(name)),
		testpod.Container(requesting("main", resource.NewQuantity(n, resource.DecimalSI).String())))
}

// burstable returns a pod without exclusive CPUs.
func burstable(name string) *v1.Pod {
	return testpod.New(name, testpod.UID(types.UID(name)), testpod.Containers("main"))
}

func plain(path string, data []byte) error { return os.WriteFile(path, data, 0o600) }

func newManager(t testing.TB, machine, path string, s *setter, opts cpus.Options) *cpus.Manager {
	t.Helper()
	if opts.ReservedCount == 0 && opts.Reserved.IsEmpty() {
		opts.ReservedCount = 1
	}
	m, err := cpus.New(machines.Read(t, machine), path, s, opts)
	require.NoError(t, err)
	m.WithoutSync(plain)
	return m
}

// on is a node on which nothing is left of pods without a directory, and of those that are gone.
type on struct {
	lifecycle.NopNode
	root string
	gone map[types.UID]bool
}

func (n on) RootDir() string         { return n.root }
func (n on) Gone(uid types.UID) bool { return n.gone[uid] }

// withDirs has the manager join a node in which the pods have directories, and no other ones.
func withDirs(t testing.TB, m *cpus.Manager, pods ...string) *cpus.Manager {
	t.Helper()
	root := t.TempDir()
	for _, uid := range pods {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "pods", uid), 0o700))
	}
	require.NoError(t, m.Join(on{root: root}))
	return m
}

func allocate(t testing.TB, m *cpus.Manager, pods ...*v1.Pod) {
	t.Helper()
	for _, p := range pods {
		for i := range p.Spec.InitContainers {
			require.NoError(t, m.Allocate(p, &p.Spec.InitContainers[i], numa.Hint{}))
		}
		for i := range p.Spec.Containers {
			require.NoError(t, m.Allocate(p, &p.Spec.Containers[i], numa.Hint{}))
		}
	}
}

func prepare(t testing.TB, m *cpus.Manager, p *v1.Pod) error {
	t.Helper()
	_, err := m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: p})
	return err
}

func edit(t testing.TB, m *cpus.Manager, p *v1.Pod) runtime.ContainerEdits {
	t.Helper()
	e, err := m.EditContainer(t.Context(), p, &p.Spec.Containers[0])
	require.NoError(t, err)
	return e
}

// status has the instance of the container main with the ID in a state.
func status(p *v1.Pod, id string, state runtime.ContainerState) *runtime.PodStatus {
	return &runtime.PodStatus{PodRef: runtime.RefOf(p),
		Containers: []runtime.ContainerStatus{{Container: runtime.Container{
			ID: runtime.ContainerID{ID: id}, Name: "main", State: state,
		}}}}
}

func end(t testing.TB, m *cpus.Manager, p *v1.Pod) {
	t.Helper()
	require.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: p}))
}

func TestExclusiveCPUs(t *testing.T) {
	path := filepath.Join(t.TempDir(), cpus.CheckpointName)
	m := newManager(t, "xeon-smt-2n", path, &setter{}, cpus.Options{ReservedCount: 2})
	assert.Equal(t, "1-15,17-31", m.Allocatable().String())
	a, b, shared := guaranteed("a", 2), guaranteed("b", 16), burstable("c")
	require.NoError(t, prepare(t, m, shared))
	assert.NoFileExists(t, path, "a pod without exclusive CPUs costs nothing")

	allocate(t, m, a, b, shared)
	require.NoError(t, prepare(t, m, a))
	assert.Equal(t, runtime.ContainerEdits{CPUSet: "1,17", NoCPUQuota: true}, edit(t, m, a))
	assert.Equal(t, runtime.ContainerEdits{CPUSet: "8-15,24-31", NoCPUQuota: true}, edit(t, m, b))
	assert.Equal(t, runtime.ContainerEdits{CPUSet: "0,2-7,16,18-23"}, edit(t, m, shared))
	assert.Equal(t, "1,17", m.Exclusive("a", "main").String())
	assert.True(t, m.HasExclusive("a"))
	assert.False(t, m.HasExclusive("c"))

	err := m.Allocate(guaranteed("d", 13), &guaranteed("d", 13).Spec.Containers[0], numa.Hint{})
	require.EqualError(t, err, "not enough cpus available to satisfy request: requested=13, available=12")
	_, err = m.EditContainer(t.Context(), guaranteed("d", 13), &guaranteed("d", 13).Spec.Containers[0])
	require.ErrorContains(t, err, "has no exclusive CPUs: it was not admitted")

	end(t, m, b)
	allocate(t, m, guaranteed("d", 13))
	require.NoError(t, m.Gone(t.Context(), lifecycle.GoneRequest{Pod: runtime.PodRef{UID: "a"}}))
	assert.False(t, m.HasExclusive("a"))
}

func TestNearTheHint(t *testing.T) {
	m := newManager(t, "xeon-2n", "unused", &setter{}, cpus.Options{})
	p := guaranteed("a", 10)
	require.NoError(t, m.Allocate(p, &p.Spec.Containers[0], numa.Hint{Nodes: numa.Of(1)}))
	assert.Equal(t, "1-2,8-15", m.Exclusive("a", "main").String(), "the nodes of the hint first")
	hints := m.Hints(p, &p.Spec.Containers[0])["cpu"]
	assert.Equal(t, []numa.Hint{{Nodes: numa.Of(0, 1), Preferred: true}}, hints, "of what it has")
	assert.Equal(t, hints, m.Hints(p, nil)["cpu"])
	bigger := guaranteed("a", 11)
	assert.Equal(t, map[string][]numa.Hint{"cpu": {}}, m.Hints(bigger, &bigger.Spec.Containers[0]),
		"it cannot be served")
	assert.Nil(t, m.Hints(burstable("b"), nil))
}

func TestInitContainersLeaveTheirCPUs(t *testing.T) {
	m := newManager(t, "xeon-2n", "unused", &setter{}, cpus.Options{})
	p := testpod.New("p", testpod.UID("p"), testpod.Container(requesting("main", "3")),
		testpod.Init(requesting("first", "4")),
		testpod.Sidecar(requesting("sidecar", "2")), testpod.Init(requesting("last", "3")))
	assert.Equal(t, 5, cpus.ExclusiveOfPod(p, false))
	allocate(t, m, p)
	of := func(name string) string { return m.Exclusive("p", name).String() }
	assert.Equal(t, []string{"1-4", "1-2", "3-5", "3-5"}, []string{of("first"), of("sidecar"), of("last"), of("main")})
	assert.Equal(t, "0,6-15", m.Shared().String())
}

func TestWhichContainersHaveExclusiveCPUs(t *testing.T) {
	whole := guaranteed("a", 2)
	assert.Equal(t, 2, cpus.Exclusive(whole, &whole.Spec.Containers[0], false))
	part := testpod.New("a", testpod.Container(requesting("main", "1500m"), requesting("other", "1")))
	assert.Equal(t, 0, cpus.Exclusive(part, &part.Spec.Containers[0], false))
	assert.Equal(t, 1, cpus.Exclusive(part, &part.Spec.Containers[1], false))
	less := guaranteed("a", 2)
	delete(less.Spec.Containers[0].Resources.Limits, v1.ResourceMemory)
	assert.Equal(t, 0, cpus.Exclusive(less, &less.Spec.Containers[0], false))
	pod := guaranteed("a", 2)
	pod.Spec.Resources = &pod.Spec.Containers[0].Resources
	assert.Equal(t, 0, cpus.Exclusive(pod, &pod.Spec.Containers[0], false))
}

func TestFullPCPUsOnly(t *testing.T) {
	m := newManager(t, "xeon-smt-2n", "unused", &setter{},
		cpus.Options{Reserved: set(t, "0"), PolicyOptions: options(t, cpus.OptionFullPCPUsOnly)})
	refused := func(n int64) string {
		p := guaranteed("refused", n)
		err := m.Allocate(p, &p.Spec.Containers[0], numa.Hint{})
		refusal := (*runtime.TerminalError)(nil)
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, "SMTAlignmentError", refusal.Reason)
		return refusal.Message
	}
	assert.Equal(t, "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2", refused(3))
	assert.Equal(t, "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 30, requested "+
		"CPUs = 32, CPUs per core = 2", refused(32))
	p := guaranteed("p", 30)
	require.NoError(t, m.Allocate(p, &p.Spec.Containers[0], numa.Hint{Nodes: numa.Of(0)}))
	assert.Equal(t, "1-15,17-31", m.Exclusive("p", "main").String(), "not the sibling of a reserved CPU")
	require.NoError(t, m.Allocate(p, &p.Spec.Containers[0], numa.Hint{}), "it has its CPUs")
}

func TestStrictReservation(t *testing.T) {
	m := newManager(t, "xeon-2n", "unused", &setter{}, cpus.Options{Reserved: set(t, "0-1"),
		PolicyOptions: options(t, cpus.OptionStrictReservation)})
	assert.Equal(t, "2-15", edit(t, m, burstable("b")).CPUSet)
	all := guaranteed("all", 14)
	allocate(t, m, all)
	_, err := m.EditContainer(t.Context(), burstable("b"), &burstable("b").Spec.Containers[0])
	require.ErrorContains(t, err, "no CPU is left for containers without exclusive CPUs")
	resized, err := m.EditContainer(runtime.WithResize(t.Context()), burstable("b"), &burstable("b").Spec.Containers[0])
	require.NoError(t, err, "one that runs keeps its CPUs")
	assert.Empty(t, resized.CPUSet)
	end(t, m, all)
	assert.Equal(t, "2-15", edit(t, m, burstable("b")).CPUSet)
}

func TestResize(t *testing.T) {
	m := newManager(t, "xeon-2n", "unused", &setter{}, cpus.Options{})
	_, err := m.Admit(lifecycle.AdmitRequest{Pod: guaranteed("a", 3), Held: guaranteed("a", 2)})
	refusal := (*runtime.TerminalError)(nil)
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, v1.PodReasonInfeasible, refusal.Reason)
	initial := func(cpu string) *v1.Pod {
		pod := guaranteed("a", 2)
		pod.Spec.InitContainers = []v1.Container{requesting("init", cpu)}
		return pod
	}
	_, err = m.Admit(lifecycle.AdmitRequest{Pod: initial("3"), Held: initial("2")})
	require.Error(t, err, "of an init container")
	more := guaranteed("a", 2)
	more.Spec.Containers[0] = requesting("main", "2")
	for _, list := range []v1.ResourceList{more.Spec.Containers[0].Resources.Limits,
		more.Spec.Containers[0].Resources.Requests} {
		list[v1.ResourceMemory] = resource.MustParse("2Gi")
	}
	_, err = m.Admit(lifecycle.AdmitRequest{Pod: more, Held: guaranteed("a", 2)})
	require.NoError(t, err, "of memory only")
	_, err = m.Admit(lifecycle.AdmitRequest{Pod: burstable("a"), Held: guaranteed("a", 2)})
	require.NoError(t, err)
}

// The containers in the shared pool leave the CPUs that become exclusive, and get them back.
func TestSharedPoolOfRunningContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &setter{}
		m := newManager(t, "xeon-2n", filepath.Join(t.TempDir(), "state"), rt, cpus.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		require.ErrorIs(t, m.Run(ctx), runtime.ErrAlreadyRunning)

		shared, exclusive := burstable("shared"), guaranteed("exclusive", 4)
		edit(t, m, shared)
		require.NoError(t, m.Running(ctx, shared, status(shared, "s1", runtime.ContainerRunning)))
		synctest.Wait()
		assert.Zero(t, rt.calls, "it has its set")
		allocate(t, m, exclusive)
		synctest.Wait()
		assert.Equal(t, "0,5-15", rt.of("s1"))
		edit(t, m, exclusive)
		require.NoError(t, m.Running(ctx, exclusive, status(exclusive, "e1", runtime.ContainerRunning)))
		synctest.Wait()
		assert.Equal(t, 1, rt.calls)

		// A container that was created before and runs only now.
		late := burstable("late")
		edit(t, m, late)
		end(t, m, exclusive)
		require.NoError(t, m.Running(ctx, late, status(late, "l1", runtime.ContainerRunning)))
		synctest.Wait()
		assert.Equal(t, "0-15", rt.of("s1"))
		assert.Equal(t, "0-15", rt.of("l1"))

		// The runtime fails, and then does not.
		rt.fail(errors.New("out of order"))
		allocate(t, m, exclusive)
		synctest.Wait()
		assert.Equal(t, "0-15", rt.of("s1"))
		rt.fail(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, "0,5-15", rt.of("s1"))

		// One container whose runtime fails or hangs does not delay the others, and has its CPUs when the runtime is
		// back.
		rt.fail(errors.New("out of order"))
		allocate(t, m, guaranteed("second", 2))
		synctest.Wait()
		rt.fail(nil)
		began := time.Now()
		rt.hang("l1")
		allocate(t, m, guaranteed("third", 2))
		end(t, m, guaranteed("third", 2))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, m.Shared().String(), rt.of("s1"))
		allocate(t, m, guaranteed("fourth", 2))
		synctest.Wait()
		assert.Equal(t, m.Shared().String(), rt.of("s1"))
		assert.Equal(t, time.Second, time.Since(began))
		assert.NotEqual(t, m.Shared().String(), rt.of("l1"))
		rt.hang("")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, m.Shared().String(), rt.of("l1"))
		end(t, m, guaranteed("second", 2))
		end(t, m, guaranteed("fourth", 2))
		synctest.Wait()
		assert.Equal(t, "0,5-15", rt.of("s1"))

		// One has ended, and the other one is gone: both are forgotten.
		rt.fail(errors.New("no such task"))
		_, err := m.Inspector(inspector{status(shared, "s1", runtime.ContainerExited)}).InspectPod(ctx,
			runtime.RefOf(shared))
		require.NoError(t, err)
		rt.fail(runtime.ErrNotFound)
		end(t, m, exclusive)
		synctest.Wait()
		before := rt.calls
		time.Sleep(time.Hour)
		assert.Equal(t, before, rt.calls)
		cancel()
		require.NoError(t, <-done)
	})
}

type inspector struct{ status *runtime.PodStatus }

func (i inspector) InspectPod(context.Context, runtime.PodRef) (*runtime.PodStatus, error) {
	return i.status, nil
}

// A limit that is not enforced is no reason for a resize.
func TestInspector(t *testing.T) {
	m := newManager(t, "xeon-2n", "unused", &setter{}, cpus.Options{})
	p := guaranteed("a", 3)
	allocate(t, m, p)
	seen := status(p, "1", runtime.ContainerRunning)
	seen.Containers[0].Resources = &v1.ResourceRequirements{
		Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}
	got, err := m.Inspector(inspector{seen}).InspectPod(t.Context(), runtime.RefOf(p))
	require.NoError(t, err)
	assert.Equal(t, int64(3), got.Containers[0].Resources.Limits.Cpu().Value())
	assert.True(t, seen.Containers[0].Resources.Limits.Cpu().IsZero(), "a copy was changed")
	got, err = m.Inspector(inspector{seen}).InspectPod(t.Context(), runtime.RefOf(burstable("b")))
	require.NoError(t, err)
	assert.Same(t, seen, got)
}

// Pods of the checkpoint leave their CPUs if they are gone, or refused.
func TestReclaim(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	first := newManager(t, "xeon-2n", path, &setter{}, cpus.Options{})
	lost, refused, kept := guaranteed("lost", 4), guaranteed("refused", 4), guaranteed("kept", 4)
	allocate(t, first, lost, refused, kept)
	require.NoError(t, prepare(t, first, kept))

	gone := map[types.UID]bool{}
	m := newManager(t, "xeon-2n", path, &setter{}, cpus.Options{})
	require.NoError(t, m.Join(on{gone: gone}))
	allocate(t, m, kept, refused)
	big := guaranteed("big", 8)
	require.ErrorContains(t, m.Allocate(big, &big.Spec.Containers[0], numa.Hint{}), "available=3")
	m.Refused(refused)
	require.ErrorContains(t, m.Allocate(big, &big.Spec.Containers[0], numa.Hint{}), "available=7")
	gone["lost"], gone["kept"] = true, true // a pod that was admitted has an end
	require.NoError(t, m.Allocate(big, &big.Spec.Containers[0], numa.Hint{}))
	assert.True(t, m.HasExclusive("kept"))

	m = newManager(t, "xeon-2n", path, &setter{}, cpus.Options{})
	m.Refused(kept)
	require.NoError(t, m.Restore())
	assert.False(t, m.HasExclusive("kept"), "refused before the checkpoint was needed")
}

// If the disk is full, only pods with exclusive CPUs wait.
func TestFullDisk(t *testing.T) {
	m := newManager(t, "xeon-2n", filepath.Join(t.TempDir(), "missing", "state"), &setter{}, cpus.Options{})
	a, b := guaranteed("a", 2), burstable("b")
	allocate(t, m, a, b)
	require.ErrorContains(t, prepare(t, m, a), "exclusive CPUs of pod")
	require.NoError(t, prepare(t, m, b))
	end(t, m, a)
	assert.Equal(t, "0-15", m.Shared().String())
}

func TestBadOptions(t *testing.T) {
	_, err := cpus.New(machines.Read(t, "xeon-2n"), "", nil, cpus.Options{Reserved: set(t, "3,16"),
		PolicyOptions: cpus.PolicyOptions{FullPCPUsOnly: true, DistributeCores: true}})
	for _, want := range []string{"the path of the checkpoint is empty", "runtime.CPUSetter",
		"reserved CPUs 16 are not online: the machine has 0-15", "exclude each other"} {
		require.ErrorContains(t, err, want)
	}
	_, err = cpus.New(machines.Read(t, "xeon-2n"), "x", &setter{}, cpus.Options{})
	require.ErrorContains(t, err, "no CPU is reserved")
	_, err = cpus.New(machines.Read(t, "xeon-2n"), "x", &setter{}, cpus.Options{ReservedCount: 17})
	require.ErrorContains(t, err, "17 CPUs cannot be reserved")
}

var noHint = numa.Hint{}

func TestMeasurements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := nodefake.NewNode()
		took := func() []runtime.Measurement {
			synctest.Wait()
			defer node.Reset()
			return node.Measurements()
		}
		m := newManager(t, "xeon-smt-2n", filepath.Join(t.TempDir(), "state"), &setter{}, cpus.Options{
			ReservedCount: 2, PolicyOptions: cpus.PolicyOptions{FullPCPUsOnly: true},
		})
		require.NoError(t, m.Join(node))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go m.Run(ctx)
		free := m.Allocatable().Size()
		assert.Equal(t, []runtime.Measurement{cpus.Counts{Shared: free, Exclusive: map[int]int{0: 0, 1: 0}}}, took(),
			"without the reserved ones")
		whole := cpus.Aligned{Boundary: cpus.BoundaryPhysicalCPU}
		allocate(t, m, guaranteed("a", 2), guaranteed("a", 2))
		assert.Equal(t, []runtime.Measurement{cpus.Pinned{}, whole, cpus.Aligned{Boundary: cpus.BoundaryUncoreCache},
			cpus.Counts{Shared: free - 2, Exclusive: map[int]int{0: 2, 1: 0}}}, took(), "once")
		odd := guaranteed("odd", 3)
		err := m.Allocate(odd, &odd.Spec.Containers[0], numa.Hint{})
		require.Error(t, err)
		assert.Equal(t, []runtime.Measurement{cpus.Pinned{Err: err},
			cpus.Aligned{Boundary: cpus.BoundaryPhysicalCPU, Err: err}}, took())
		allocate(t, m, guaranteed("large", int64(free-4)))
		got := took()
		require.Len(t, got, 3)
		assert.Equal(t, []runtime.Measurement{cpus.Pinned{}, whole}, got[:2], "in several caches")
		assert.Equal(t, 2, got[2].(cpus.Counts).Shared)
	})
}
