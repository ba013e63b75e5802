package cgroup

import (
	"context"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// fakeTree is a tree in memory. It counts what it is asked for.
type fakeTree struct {
	mu      sync.Mutex
	v2      bool
	cgroups map[string]Resources
	problem error // of usable
	fails   map[string]error
	usage   map[string]int64
	writes  int
	lookups int
	moved   []string
}

func newFakeTree() *fakeTree {
	return &fakeTree{cgroups: map[string]Resources{}, fails: map[string]error{}, usage: map[string]int64{}}
}

func (f *fakeTree) usable(Driver) error { return f.problem }
func (f *fakeTree) missing() []string   { return nil }
func (f *fakeTree) unified() bool       { return f.v2 }

func (f *fakeTree) exists(cgroup string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookups++
	_, ok := f.cgroups[cgroup]
	return ok
}

func (f *fakeTree) make(d Driver, cgroup string, r Resources) error {
	f.mu.Lock()
	if err := f.fails[cgroup]; err != nil {
		f.mu.Unlock()
		return err
	}
	if _, ok := f.cgroups[cgroup]; !ok {
		f.cgroups[cgroup] = Resources{}
	}
	f.mu.Unlock()
	return f.set(d, cgroup, r)
}

func (f *fakeTree) set(_ Driver, cgroup string, r Resources) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	if err := f.fails[cgroup]; err != nil {
		return err
	}
	old, ok := f.cgroups[cgroup]
	if !ok {
		return syscall.ENOENT
	}
	if r.MemoryMax > 0 && r.MemoryMax < f.usage[cgroup] {
		return syscall.EBUSY
	}
	for _, n := range []struct{ to, from *int64 }{{&old.CPUQuota, &r.CPUQuota}, {&old.MemoryMax, &r.MemoryMax},
		{&old.MemoryHigh, &r.MemoryHigh},
		{&old.PidsMax, &r.PidsMax}} {
		if *n.from != 0 {
			*n.to = *n.from
		}
	}
	if r.CPUShares != 0 {
		old.CPUShares = r.CPUShares
	}
	if r.CPUPeriod != 0 {
		old.CPUPeriod = r.CPUPeriod
	}
	if r.MemoryMin != nil {
		old.MemoryMin = r.MemoryMin
	}
	if r.MemoryLow != nil {
		old.MemoryLow = r.MemoryLow
	}
	f.cgroups[cgroup] = old
	return nil
}

func (f *fakeTree) read(cgroup string, _ Resources) (Resources, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, ok := f.cgroups[cgroup]
	if !ok {
		return Resources{}, syscall.ENOENT
	}
	return r.complete(), nil
}

func (f *fakeTree) memoryUsage(cgroup string) (int64, error) { return f.usage[cgroup], nil }
func (f *fakeTree) pageSizes() []string                      { return nil }
func (f *fakeTree) cpus() string                             { return "0-1" }
func (f *fakeTree) moveSelf(cgroup string) error {
	f.moved = append(f.moved, "self "+cgroup)
	return nil
}
func (f *fakeTree) moveRoot(cgroup string) error {
	f.moved = append(f.moved, "root "+cgroup)
	return nil
}

func (f *fakeTree) get(cgroup string) Resources {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cgroups[cgroup]
}

func (f *fakeTree) remove(cgroup string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.cgroups, cgroup)
}

func newTestManager(t *testing.T, f *fakeTree, opts ManagerOptions) *Manager {
	t.Helper()
	pods, err := New(Options{MountPoint: t.TempDir()})
	require.NoError(t, err)
	opts.tree = f
	m, err := NewManager(pods, opts)
	require.NoError(t, err)
	return m
}

func burstable(uid, cpu, memory string) *v1.Pod {
	c := v1.Container{Name: "c", Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu),
			v1.ResourceMemory: resource.MustParse(memory)},
		Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu),
			v1.ResourceMemory: resource.MustParse("4Gi")},
	}}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: uid, Namespace: "n"},
		Spec: v1.PodSpec{Containers: []v1.Container{c}}}
}

func prepare(t *testing.T, m *Manager, pod *v1.Pod, observed *runtime.PodStatus) lifecycle.PrepareResponse {
	t.Helper()
	resp, err := m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: pod, Observed: observed})
	require.NoError(t, err)
	return resp
}

// A pod that is prepared again costs one look at its directory, and no write.
func TestPrepareIsCheap(t *testing.T) {
	f := newFakeTree()
	m := newTestManager(t, f, ManagerOptions{Policy: Policy{PodPidsLimit: 10}})
	pod := burstable("a", "100m", "1Gi")
	prepare(t, m, pod, nil)
	assert.Equal(t, Resources{CPUShares: 102, CPUQuota: 10000, CPUPeriod: defaultPeriod, MemoryMax: 4 << 30,
		PidsMax: 10}, f.get("/kubepods/burstable/poda"))
	writes, lookups := f.writes, f.lookups
	for range 10 {
		assert.Zero(t, prepare(t, m, pod, nil))
	}
	assert.Equal(t, writes, f.writes)
	assert.Equal(t, lookups+10, f.lookups)
}

// An agent that was killed after it had made a cgroup finds it. What a limit is not in the spec any more is none.
func TestPrepareTakesOver(t *testing.T) {
	f := newFakeTree()
	f.cgroups["/kubepods/burstable/poda"] = Resources{CPUShares: 7, PidsMax: 3, MemoryMax: 1}
	m := newTestManager(t, f, ManagerOptions{})
	prepare(t, m, burstable("a", "100m", "1Gi"), nil)
	assert.Equal(t, Resources{CPUShares: 102, CPUQuota: 10000, CPUPeriod: defaultPeriod, MemoryMax: 4 << 30,
		MemoryHigh: None, PidsMax: None}, f.get("/kubepods/burstable/poda"))
}

// Somebody else removes a cgroup: it is made again, and those above it.
func TestARemovedCgroupIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTree()
		m := newTestManager(t, f, ManagerOptions{})
		stop := run(t, m)
		defer stop()
		pod := burstable("a", "100m", "1Gi")
		prepare(t, m, pod, nil)
		time.Sleep(time.Minute)
		for _, cgroup := range []string{"/kubepods/burstable/poda", "/kubepods/burstable"} {
			f.remove(cgroup)
		}
		prepare(t, m, pod, nil)
		time.Sleep(time.Minute)
		assert.Equal(t, uint64(102), f.get("/kubepods/burstable/poda").CPUShares)
		assert.Equal(t, uint64(102), f.get("/kubepods/burstable").CPUShares)
	})
}

// run runs the manager until the returned function is called.
func run(t *testing.T, m *Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, m.Run(ctx)) })
	return func() { cancel(); wg.Wait() }
}

// The class follows the requests of its pods, once they are settled. Without changes nothing is written.
func TestClassesFollowTheirPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTree()
		m := newTestManager(t, f, ManagerOptions{Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"),
			v1.ResourceMemory: resource.MustParse("8Gi")}})
		stop := run(t, m)
		defer stop()
		prepare(t, m, burstable("a", "100m", "1Gi"), nil)
		prepare(t, m, burstable("b", "900m", "1Gi"), nil)
		time.Sleep(settleMax)
		assert.Equal(t, uint64(1024), f.get("/kubepods/burstable").CPUShares)
		assert.Equal(t, uint64(2), f.get("/kubepods/besteffort").CPUShares)
		assert.Equal(t, uint64(2048), f.get("/kubepods").CPUShares)
		assert.Equal(t, int64(8)<<30, f.get("/kubepods").MemoryMax)
		writes := f.writes
		time.Sleep(time.Hour)
		assert.Equal(t, writes, f.writes, "idle")

		require.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: burstable("b", "900m", "1Gi")}))
		time.Sleep(settleMax)
		assert.Equal(t, uint64(102), f.get("/kubepods/burstable").CPUShares)
		_, err := m.RemoveGone(func(uid types.UID) bool { return uid == "a" })
		require.NoError(t, err)
		time.Sleep(settleMax)
		assert.Equal(t, uint64(2), f.get("/kubepods/burstable").CPUShares)
	})
}

// An agent that starts does not take shares from running pods while it does not know all of them yet.
func TestAStartTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTree()
		f.cgroups["/kubepods"], f.cgroups["/kubepods/burstable"] = Resources{}, Resources{CPUShares: 5000}
		m := newTestManager(t, f, ManagerOptions{})
		stop := run(t, m)
		defer stop()
		for i := range 8 {
			prepare(t, m, burstable(string(rune('a'+i)), "100m", "1Gi"), nil)
			time.Sleep(900 * time.Millisecond)
			assert.Equal(t, uint64(5000), f.get("/kubepods/burstable").CPUShares)
		}
		time.Sleep(settleMax)
		assert.Equal(t, uint64(819), f.get("/kubepods/burstable").CPUShares)
	})
}

// The limits of all pods, and of what is reserved. A cgroup that does not exist is tried again, and said once.
func TestEnforcement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTree()
		node := nodefake.NewNode()
		m := newTestManager(t, f, ManagerOptions{
			Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"),
				v1.ResourceMemory: resource.MustParse("8Gi"), PIDs: resource.MustParse("1000")},
			SystemReserved: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"),
				v1.ResourceMemory: resource.MustParse("1Gi"), PIDs: resource.MustParse("100")},
			KubeReserved: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"),
				v1.ResourceMemory: resource.MustParse("2Gi")},
			Enforce:              []Enforcement{EnforcePods, EnforceSystemReserved, EnforceKubeReservedCompressible},
			SystemReservedCgroup: "/system", KubeReservedCgroup: "/kube",
			KubeletCgroup: "/agent", SystemCgroup: "/rest",
		})
		require.NoError(t, m.Join(node))
		f.cgroups["/kube"] = Resources{}
		stop := run(t, m)
		defer stop()
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		assert.Equal(t, Resources{CPUShares: 1024, MemoryMax: 5 << 30, PidsMax: 900, MemoryMin: new(int64(0)),
			MemoryLow: new(int64(0))}, f.get("/kubepods"))
		assert.Equal(t, Resources{CPUShares: 512}, f.get("/kube"))
		require.Len(t, node.Events(), 3, "of the system, of which the cgroup is missing, once")
		f.mu.Lock()
		f.cgroups["/system"] = Resources{}
		assert.Equal(t, []string{"self /agent", "root /rest", "self /agent", "root /rest", "self /agent", "root /rest"},
			f.moved)
		f.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, Resources{CPUShares: 512, MemoryMax: 1 << 30, PidsMax: 100}, f.get("/system"))
		require.Len(t, node.Events(), 4)
		assert.Equal(t, runtime.Event{Type: "Normal", Reason: "NodeAllocatableEnforced",
			Message: "Updated limits on system reserved cgroup /system"}, node.Events()[3])
	})
}

// A class that uses more than it is to have gets what it uses, so that it does not grow.
func TestReservedMemoryThatIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTree()
		f.usage["/kubepods/besteffort"] = 6 << 30
		m := newTestManager(t, f, ManagerOptions{ReservedMemory: new(int64(100)),
			Capacity: v1.ResourceList{v1.ResourceMemory: resource.MustParse("8Gi")}})
		stop := run(t, m)
		defer stop()
		prepare(t, m, burstable("a", "100m", "3Gi"), nil)
		time.Sleep(time.Minute)
		assert.Equal(t, int64(8)<<30, f.get("/kubepods/burstable").MemoryMax)
		assert.Equal(t, int64(6)<<30, f.get("/kubepods/besteffort").MemoryMax)
	})
}

// A cgroup grows before its containers, and shrinks after them.
func TestResize(t *testing.T) {
	f := newFakeTree()
	m := newTestManager(t, f, ManagerOptions{})
	at := "/kubepods/burstable/poda"
	with := func(cpu, memory string, generation int64) *v1.Pod {
		pod := ofAPI(burstable("a", cpu, "1Gi"), generation)
		pod.Spec.Containers[0].Resources.Limits[v1.ResourceMemory] = resource.MustParse(memory)
		return pod
	}
	holding := func(pod *v1.Pod) *runtime.PodStatus {
		r := pod.Spec.Containers[0].Resources.DeepCopy()
		delete(r.Requests, v1.ResourceMemory)
		return &runtime.PodStatus{Containers: []runtime.ContainerStatus{{Container: runtime.Container{Name: "c",
			State: runtime.ContainerRunning}, Resources: r}}}
	}
	limits := func() []int64 { r := f.get(at); return []int64{int64(r.CPUShares), r.CPUQuota, r.MemoryMax >> 20} }
	prepare(t, m, with("100m", "100Mi", 1), nil)
	assert.Equal(t, []int64{102, 10000, 100}, limits())
	prepare(t, m, with("200m", "50Mi", 2), holding(with("100m", "100Mi", 1)))
	assert.Equal(t, []int64{204, 20000, 100}, limits(), "more CPU at once, less memory later")
	prepare(t, m, with("200m", "50Mi", 2), holding(with("200m", "50Mi", 2)))
	assert.Equal(t, []int64{204, 20000, 50}, limits())

	f.usage[at] = 40 << 20
	assert.NotZero(t, prepare(t, m, with("200m", "30Mi", 3), holding(with("200m", "30Mi", 3))).ResizeError,
		"the pod uses more than that")
	assert.Equal(t, []int64{204, 20000, 50}, limits())
	f.usage[at] = 0
	assert.Equal(t, lifecycle.PrepareResponse{Changed: true}, prepare(t, m, with("200m", "30Mi", 3),
		holding(with("200m", "30Mi", 3))))
	assert.Equal(t, []int64{204, 20000, 30}, limits())
}

// ofAPI makes the pod one of an API server, in this generation.
func ofAPI(pod *v1.Pod, generation int64) *v1.Pod {
	pod.Generation, pod.Annotations = generation, map[string]string{podspec.AnnotationConfigSource: podspec.SourceAPI}
	return pod
}

// whole returns a pod with limits as a whole, and two containers: c has its own, d those of the pod.
func whole(generation int64, cpu, memory string) *v1.Pod {
	pod := ofAPI(burstable("a", "100m", "64Mi"), generation)
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"),
		v1.ResourceMemory: resource.MustParse("64Mi")}
	pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "d"})
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: list, Limits: list}
	return pod
}

// running returns the pod with its containers as a runtime has them if they have the resources of the spec.
func running(pod *v1.Pod) *runtime.PodStatus {
	status := &runtime.PodStatus{PodRef: runtime.RefOf(pod)}
	for _, c := range podspec.Containers(&pod.Spec) {
		limits := v1.ResourceList{v1.ResourceCPU: podspec.LimitOf(pod, c, v1.ResourceCPU),
			v1.ResourceMemory: podspec.LimitOf(pod, c, v1.ResourceMemory)}
		status.Containers = append(status.Containers, runtime.ContainerStatus{
			Container: runtime.Container{Name: c.Name, State: runtime.ContainerRunning},
			Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: limits[v1.ResourceCPU]},
				Limits: limits},
		})
	}
	return status
}

// A pod grows before its containers and shrinks after them, for CPU and memory each. Its containers may hold the limit
// of the pod.
func TestResizeOfThePodAsAWhole(t *testing.T) {
	for name, tc := range map[string]struct {
		to            *v1.Pod
		first, second []int64
	}{
		"more":             {whole(2, "400m", "200Mi"), []int64{409, 40000, 200}, []int64{409, 40000, 200}},
		"less":             {whole(2, "150m", "80Mi"), []int64{204, 20000, 100}, []int64{153, 15000, 80}},
		"more CPU":         {whole(2, "400m", "80Mi"), []int64{409, 40000, 100}, []int64{409, 40000, 80}},
		"only less memory": {whole(2, "200m", "80Mi"), []int64{204, 20000, 100}, []int64{204, 20000, 80}},
	} {
		f := newFakeTree()
		m := newTestManager(t, f, ManagerOptions{})
		limits := func() []int64 {
			r := f.get("/kubepods/poda")
			return []int64{int64(r.CPUShares), r.CPUQuota, r.MemoryMax >> 20}
		}
		from := whole(1, "200m", "100Mi")
		assert.Zero(t, prepare(t, m, from, nil), "nothing was observed of it")
		require.Equal(t, []int64{204, 20000, 100}, limits())
		changed := prepare(t, m, tc.to, running(from)).Changed
		assert.Equal(t, tc.first, limits(), name)
		assert.Equal(t, limits()[0] != 204 || limits()[1] != 20000 || limits()[2] != 100, changed, name)
		// Another agent continues.
		m = newTestManager(t, f, ManagerOptions{})
		assert.Equal(t, !slices.Equal(tc.first, tc.second), prepare(t, m, tc.to, running(tc.to)).Changed, name)
		assert.Equal(t, tc.second, limits(), name)
		writes := f.writes
		assert.Zero(t, prepare(t, m, tc.to, running(tc.to)), name)
		assert.Equal(t, writes, f.writes, name)
	}
	// Only the pod is resized, because its containers have limits of their own.
	f := newFakeTree()
	m := newTestManager(t, f, ManagerOptions{})
	own := func(generation int64, memory string) *v1.Pod {
		pod := whole(generation, "200m", memory)
		pod.Spec.Containers = pod.Spec.Containers[:1]
		return pod
	}
	prepare(t, m, own(1, "100Mi"), nil)
	assert.True(t, prepare(t, m, own(2, "80Mi"), running(own(1, "100Mi"))).Changed)
	assert.Equal(t, int64(80<<20), f.get("/kubepods/poda").MemoryMax, "at once")
}

// Without limits of CPU time a pod shrinks, although its containers never have the limit of their spec.
func TestResizeWithoutLimitsOfCPU(t *testing.T) {
	f := newFakeTree()
	m := newTestManager(t, f, ManagerOptions{Policy: Policy{NoCPUQuota: true}})
	from, to := whole(1, "400m", "100Mi"), whole(2, "200m", "100Mi")
	prepare(t, m, from, nil)
	observed := running(to)
	for i := range observed.Containers {
		delete(observed.Containers[i].Resources.Limits, v1.ResourceCPU)
	}
	assert.True(t, prepare(t, m, to, observed).Changed)
	assert.Equal(t, uint64(204), f.get("/kubepods/poda").CPUShares)
	observed.Containers[0].Resources = nil
	assert.Zero(t, prepare(t, m, to, observed))
}

// owner gives the containers of one pod CPUs of their own.
type owner struct{ uid types.UID }

func (owner) Name() string                  { return "owner" }
func (o owner) NoCPUQuota(pod *v1.Pod) bool { return pod.UID == o.uid }

// No limit of CPU is enforced for a pod with CPUs of its own.
func TestPodsWithCPUsOfTheirOwn(t *testing.T) {
	f := newFakeTree()
	m := newTestManager(t, f, ManagerOptions{})
	node := nodefake.NewNode()
	node.SetComponents(m, owner{"b"})
	require.NoError(t, m.Join(node))
	for uid, want := range map[string]int64{"a": 40000, "b": 0} {
		prepare(t, m, burstable(uid, "400m", "100Mi"), nil)
		assert.Equal(t, want, f.get("/kubepods/burstable/pod"+uid).CPUQuota, uid)
	}
}

// A resize to less memory than the pod uses changes nothing, also not its CPU, until it uses less.
func TestResizeBelowTheUsage(t *testing.T) {
	f := newFakeTree()
	m := newTestManager(t, f, ManagerOptions{})
	at := "/kubepods/poda"
	from, to := whole(1, "200m", "100Mi"), whole(2, "400m", "32Mi")
	prepare(t, m, from, nil)
	f.usage[at] = 48 << 20
	for range 2 {
		got := prepare(t, m, to, running(from))
		assert.Equal(t, lifecycle.PrepareResponse{
			ResizeError: "cannot decrease memory limits: attempting to set pod memory limit (33554432) below " +
				"current usage (50331648)",
		}, got)
		assert.Equal(t, int64(20000), f.get(at).CPUQuota)
		observed := running(from)
		status, err := m.Inspector(inspected{observed}).InspectPod(t.Context(), observed.PodRef)
		require.NoError(t, err)
		require.NotNil(t, status.Resources, "what is in force is known, also by another agent")
		assert.Equal(t, "100Mi", status.Resources.Limits.Memory().String())
		m = newTestManager(t, f, ManagerOptions{}) // another agent finds the same
	}
	f.usage[at] = 16 << 20
	assert.Equal(t, lifecycle.PrepareResponse{Changed: true}, prepare(t, m, to, running(from)), "more CPU")
	assert.Equal(t, lifecycle.PrepareResponse{Changed: true}, prepare(t, m, to, running(to)), "less memory")
	assert.Equal(t, int64(32<<20), f.get(at).MemoryMax)

	f.fails[at] = syscall.EINVAL
	assert.Contains(t, prepare(t, m, whole(3, "800m", "32Mi"), running(to)).ResizeError, "invalid argument",
		"the containers wait for it")
}

// The status of a pod that runs has what its cgroup has.
func TestInspection(t *testing.T) {
	f := newFakeTree()
	m := newTestManager(t, f, ManagerOptions{})
	pod := whole(1, "200m", "100Mi")
	observed := running(pod)
	inspect := func() *v1.ResourceRequirements {
		got, err := m.Inspector(inspected{observed}).InspectPod(t.Context(), observed.PodRef)
		require.NoError(t, err)
		return got.Resources
	}
	assert.Nil(t, inspect(), "not prepared")
	prepare(t, m, pod, nil)
	got := inspect()
	assert.Equal(t, []string{"200m", "200m", "100Mi"}, []string{got.Requests.Cpu().String(), got.Limits.Cpu().String(),
		got.Limits.Memory().String()})
	assert.Nil(t, observed.Resources, "the status is shared")
	f.cgroups["/kubepods/poda"] = Resources{CPUShares: 2}
	got = inspect()
	assert.Equal(t, "2m", got.Requests.Cpu().String())
	assert.Empty(t, got.Limits)
	f.remove("/kubepods/poda")
	assert.Nil(t, inspect())
	observed.Containers = nil
	assert.Nil(t, inspect(), "it does not run")
}

type inspected struct{ status *runtime.PodStatus }

func (i inspected) InspectPod(context.Context, runtime.PodRef) (*runtime.PodStatus, error) {
	return i.status, nil
}

// The words of the API are those of the spec: no amount is lost on the way to the kernel and back.
func TestRequirements(t *testing.T) {
	for _, milli := range []int64{2, 3, 10, 99, 100, 101, 250, 333, 999, 1000, 1001, 64_000, 255_999} {
		r := Resources{CPUShares: Shares(milli), CPUQuota: quota(milli, defaultPeriod),
			CPUPeriod: defaultPeriod}.requirements()
		assert.Equal(t, milli, r.Requests.Cpu().MilliValue())
		assert.Equal(t, max(milli, podspec.MinCPULimitMilli), r.Limits.Cpu().MilliValue())
		assert.Equal(t, Shares(milli), sharesOf(Weight(Shares(milli)), Shares(milli)))
	}
	for weight := uint64(1); weight <= maxWeight; weight++ {
		assert.Equal(t, weight, Weight(sharesOf(weight, 0)))
	}
}

// What does not work is said once for each cause, pods go on, and it is tried again.
func TestFailures(t *testing.T) {
	f := newFakeTree()
	var lines int
	node := &nodefake.Node{Log: funcr.New(func(_, _ string) { lines++ }, funcr.Options{})}
	m := newTestManager(t, f, ManagerOptions{})
	require.NoError(t, m.Join(node))
	for _, uid := range []string{"a", "b", "c"} {
		f.fails["/kubepods/burstable/pod"+uid] = syscall.EROFS
		assert.Equal(t, retryAfter, prepare(t, m, burstable(uid, "100m", "1Gi"), nil).RetryAfter)
	}
	assert.Equal(t, []int{1, 1}, []int{lines, len(node.Events())})
	f.fails["/kubepods/burstable/poda"] = syscall.EAGAIN // the limit of processes of the agent's own cgroup
	prepare(t, m, burstable("a", "100m", "1Gi"), nil)
	assert.Equal(t, []int{2, 2}, []int{lines, len(node.Events())}, "another cause")

	own := burstable("b", "100m", "1Gi")
	own.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("2Gi")}}
	_, err := m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: own})
	require.ErrorIs(t, err, syscall.EROFS, "limits of the pod itself are held by nothing else")
	_, err = m.Admit(lifecycle.AdmitRequest{Pod: own})
	require.NoError(t, err, "it is tried")

	clear(f.fails)
	assert.Zero(t, prepare(t, m, burstable("a", "100m", "1Gi"), nil))
	assert.Equal(t, 3, lines, "it works again")
}

// Without permission nothing happens, and pods with limits of their own are refused.
func TestWithoutPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTree()
		f.problem = syscall.EPERM
		var lines int
		m := newTestManager(t, f, ManagerOptions{})
		require.NoError(t, m.Join(&nodefake.Node{Log: funcr.New(func(_, _ string) { lines++ }, funcr.Options{})}))
		stop := run(t, m)
		defer stop()
		pod := burstable("a", "100m", "1Gi")
		assert.Zero(t, prepare(t, m, pod, nil))
		_, err := m.Admit(lifecycle.AdmitRequest{Pod: pod})
		require.NoError(t, err)
		pod.Spec.Resources = &v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("2Gi")}}
		_, err = m.Admit(lifecycle.AdmitRequest{Pod: pod})
		var refusal *runtime.TerminalError
		require.ErrorAs(t, err, &refusal)
		assert.Equal(t, reasonUnsupported, refusal.Reason)
		_, err = RefuseLimits("none").Admit(lifecycle.AdmitRequest{Pod: pod})
		require.ErrorAs(t, err, &refusal)
		_, err = RefuseLimits("none").Admit(lifecycle.AdmitRequest{Pod: burstable("b", "100m", "1Gi")})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		assert.Empty(t, f.cgroups)
		assert.Zero(t, f.writes+f.lookups)
		assert.Equal(t, 1, lines)
	})
}

// The numbers follow from generateLinuxContainerResources of kubelet 1.37, with 8 GiB for pods.
func TestContainerMemoryQoS(t *testing.T) {
	if os.Getpagesize() != 4096 {
		t.Skip("the numbers are those of pages of 4 KiB")
	}
	throttle, both := Policy{MemoryThrottlingFactor: 0.9}, Policy{MemoryThrottlingFactor: 0.9, MemoryReservation: true}
	amounts := func(request, limit string) v1.ResourceRequirements {
		r := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
		for list, amount := range map[*v1.ResourceList]string{&r.Requests: request, &r.Limits: limit} {
			if amount != "" {
				*list = v1.ResourceList{v1.ResourceMemory: resource.MustParse(amount),
					v1.ResourceCPU: resource.MustParse("1")}
			}
		}
		return r
	}
	for _, tc := range []struct {
		request, limit, whole string
		policy                Policy
		off                   bool
		min, low, high        string
	}{
		{request: "1Gi", limit: "4Gi", policy: both, low: "1073741824", high: "3972841472"},
		{request: "1Gi", limit: "4Gi", min: "0", low: "0"},
		{request: "1Gi", limit: "4Gi", policy: both, off: true, high: "max"},
		{request: "1Gi", policy: throttle, min: "0", low: "0", high: "7838314496"},
		{request: "1Gi", whole: "2Gi", policy: throttle, min: "0", low: "0"},
		{request: "1Gi", limit: "1536Mi", whole: "2Gi", policy: throttle, min: "0", low: "0", high: "1556922368"},
		{request: "1Gi", limit: "1Gi", policy: both, min: "1073741824"},
		{policy: both, min: "0", low: "0", high: "7730937856"},
	} {
		pod := burstable("a", "100m", "1Gi")
		pod.Spec.Containers[0].Resources = amounts(tc.request, tc.limit)
		if tc.whole != "" {
			pod.Spec.Resources = new(amounts("", tc.whole))
		}
		want := map[string]string{}
		for file, value := range map[string]string{"memory.min": tc.min, "memory.low": tc.low, "memory.high": tc.high} {
			if value != "" {
				want[file] = value
			}
		}
		f := newFakeTree()
		m := newTestManager(t, f, ManagerOptions{MemoryQoS: !tc.off, Policy: tc.policy,
			Capacity: v1.ResourceList{v1.ResourceMemory: resource.MustParse("8Gi")}})
		edits, err := m.EditContainer(t.Context(), pod, &pod.Spec.Containers[0])
		require.NoError(t, err)
		assert.Zero(t, edits, "cgroup v1")
		f.v2 = true
		edits, err = m.EditContainer(t.Context(), pod, &pod.Spec.Containers[0])
		require.NoError(t, err)
		assert.Equal(t, want, edits.Unified, "%+v", tc)
	}
}

func TestManagerOptionsThatAreWrong(t *testing.T) {
	pods, err := New(Options{})
	require.NoError(t, err)
	for _, opts := range []ManagerOptions{
		{Policy: Policy{MemoryThrottlingFactor: 2}}, {ReservedMemory: new(int64(101))}, {Enforce: []Enforcement{"all"}}, {Enforce: []Enforcement{EnforceSystemReserved}},
		{Enforce: []Enforcement{EnforceKubeReservedCompressible}}, {SystemCgroup: "/"},
	} {
		_, err := NewManager(pods, opts)
		assert.ErrorContains(t, err, "cgroup: ", "%+v", opts)
	}
	_, err = NewManager(nil, ManagerOptions{})
	require.Error(t, err)
}
