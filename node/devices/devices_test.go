package devices_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/devices/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestNew(t *testing.T) {
	_, err := devices.New("", devices.Options{Providers: []devices.Provider{nil, devices.Fixed("cpu", nil),
		devices.Fixed("a.b/c", nil), devices.Fixed("a.b/c", nil)}})
	require.EqualError(t, err, `devices: Options.Providers[0] is nil
Options.Providers[1]: "cpu" is no name of an extended resource, such as example.com/device
Options.Providers[3]: there is another provider of a.b/c`)
	for name, ok := range map[v1.ResourceName]bool{
		"example.com/port": true, "cpu": false, "kubernetes.io/x": false, "requests.example.com/x": false, "/x": false, "example.com/": false, "example.com/ä": false,
		v1.ResourceName("example.com/" + strings.Repeat("x", 64)): false,
		v1.ResourceName(strings.Repeat("x", 245) + "/x"):          false,
	} {
		assert.Equal(t, ok, devices.CheckResource(name) == nil, "%s", name)
	}
	m, err := devices.New("", devices.Options{})
	require.NoError(t, err)
	require.NoError(t, m.Run(t.Context()), "without providers it needs no goroutine")
	require.ErrorIs(t, m.Run(t.Context()), runtime.ErrAlreadyRunning)
	require.ErrorContains(t, m.Serve(t.Context(), devices.Fixed("cpu", nil)), "no name of an extended resource")
}

func TestLifeOfAPod(t *testing.T) {
	bubble(t, list("a", "b", "c"), func(t *testing.T, r *rig, p *fake.Provider, _ func() error) {
		pod := podOf("one", 2)
		r.start(pod)
		assert.Equal(t, map[string][]string{"main": {"a", "b"}}, r.ids(pod))
		edits, err := r.edits(pod, "main")
		require.NoError(t, err)
		assert.Equal(t, runtime.ContainerEdits{Env: []v1.EnvVar{{Name: "DEVICES", Value: "a,b"}}}, edits)
		require.NoError(t, r.prepare(pod, "main"))
		assert.Equal(t, []fake.Call{{Method: "Prefer", Container: "", IDs: []string{"a", "b", "c"}},
			{Method: "Allocate", Container: "main", IDs: []string{"a", "b"}}, {Method: "PreStart", Container: "main", IDs: []string{"a", "b"}}}, p.Calls())

		_, err = r.Manager.EditContainer(runtime.WithResize(t.Context()), pod, &pod.Spec.Containers[0])
		require.NoError(t, err)
		assert.Len(t, p.Calls(), 3, "a resize is no start")

		var refusal *runtime.TerminalError
		require.ErrorAs(t, r.admit(podOf("two", 2)), &refusal)
		assert.Equal(t, runtime.TerminalError{Reason: "UnexpectedAdmissionError",
			Message: "Allocate failed due to requested number of devices unavailable for example.com/port. " +
				"Requested: 2, Available: 1, which is unexpected"}, *refusal)
		assert.Empty(t, r.ids(podOf("two", 2)))
		huge := podOf("huge", 1<<62)
		require.Error(t, r.admit(huge))

		r.end(pod)
		assert.Empty(t, r.ids(pod))
		r.start(podOf("two", 3))
		_, err = r.edits(pod, "main")
		require.EqualError(t, err,
			`container "main" of pod default/one(uid-one) does not have its devices of example.com/port: it was not prepared`)
	})
}

// A pod without extended resources, and one with those of others, are none of our business.
func TestOthers(t *testing.T) {
	bubble(t, list("a"), func(t *testing.T, r *rig, p *fake.Provider, _ func() error) {
		for _, pod := range []*v1.Pod{
			testpod.New("none", testpod.Containers("main")),
			testpod.New("others",
				testpod.Container(wants("main", map[v1.ResourceName]int64{"example.com/unknown": 3}))),
			testpod.New("zero", testpod.Container(wants("main", ports(0)))),
			testpod.New("dra", testpod.Container(wants("main", ports(5))), func(pod *v1.Pod) {
				pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
					RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: "main", ResourceName: port}}}
			}),
		} {
			r.start(pod)
			edits, err := r.edits(pod, "main")
			require.NoError(t, err)
			assert.Equal(t, runtime.ContainerEdits{}, edits)
			assert.Empty(t, r.Hints(pod, &pod.Spec.Containers[0]), pod.Name)
			s := v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main"}}}
			r.EditStatus(pod, &s)
			assert.Equal(t, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main"}}}, s)
			r.end(pod)
		}
		assert.Empty(t, p.Calls())
	})
}

// Containers of a pod use the devices of init containers again, and not those of sidecars (kubernetes#120461 and the
// specs of e2e_node).
func TestReuse(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  []testpod.Option
		want map[string][]string
		err  string
	}{
		"init container": {
			pod:  []testpod.Option{testpod.Init(wants("init", ports(1))), testpod.Container(wants("main", ports(2)))},
			want: map[string][]string{"init": {"a"}, "main": {"a", "b"}},
		},
		"larger init container": {
			pod: []testpod.Option{testpod.Init(wants("init", ports(3)), wants("next", ports(2))),
				testpod.Container(wants("main", ports(1)), wants("other", ports(1)))},
			want: map[string][]string{"init": {"a", "b", "c"}, "next": {"a", "b"}, "main": {"a"}, "other": {"b"}},
		},
		"sidecar": {
			pod: []testpod.Option{testpod.Sidecar(wants("side", ports(1))),
				testpod.Container(wants("main", ports(2)))},
			want: map[string][]string{"side": {"a"}, "main": {"b", "c"}},
		},
		"init container, then sidecar": {
			pod: []testpod.Option{testpod.Init(wants("init", ports(2))), testpod.Sidecar(wants("side", ports(1))),
				testpod.Container(wants("main", ports(2)))},
			want: map[string][]string{"init": {"a", "b"}, "side": {"a"}, "main": {"b", "c"}},
		},
		"too many": {
			pod: []testpod.Option{testpod.Sidecar(wants("side", ports(2))), testpod.Init(wants("init", ports(1))),
				testpod.Container(wants("main", ports(2)))},
			err: "Requested: 1, Available: 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, list("a", "b", "c"), func(t *testing.T, r *rig, _ *fake.Provider, _ func() error) {
				pod := testpod.New("pod", tc.pod...)
				if tc.err != "" {
					require.ErrorContains(t, r.admit(pod), tc.err)
					assert.Empty(t, r.ids(pod), "those of the containers before it are released")
					r.start(podOf("another", 3))
					return
				}
				r.start(pod)
				assert.Equal(t, tc.want, r.ids(pod))
				r.restart()
				require.NoError(t, r.admit(pod))
				assert.Equal(t, tc.want, r.ids(pod))
			})
		})
	}
}

// The provider chooses among the devices that are free, and later containers follow.
func TestPrefer(t *testing.T) {
	bubble(t, list("a", "b", "c", "d", "e"), func(t *testing.T, r *rig, p *fake.Provider, _ func() error) {
		r.start(podOf("other", 1))
		p.OnPrefer = func(_ context.Context, req devices.PreferRequest) ([]string, error) {
			assert.Contains(t, req.Available, "e")
			return []string{"e", "nonsense", "a", "e", "c"}, nil // a is taken
		}
		pod := testpod.New("pod", testpod.Init(wants("init", ports(2))), testpod.Container(wants("main", ports(3))))
		require.NoError(t, r.admit(pod))
		assert.Equal(t, map[string][]string{"init": {"b", "c"}, "main": {"b", "c", "d"}}, r.ids(pod))
		require.NoError(t, r.prepare(pod))
		assert.Equal(t, map[string][]string{"init": {"c", "e"}, "main": {"c", "d", "e"}}, r.ids(pod))
		last := podOf("last", 1)
		r.start(last)
		assert.Equal(t, map[string][]string{"main": {"b"}}, r.ids(last))
	})
}

func TestHintsAndPlacement(t *testing.T) {
	all := append(on(0, "a0", "a1"), append(on(1, "b0", "b1", "b2"), list("c0")...)...)
	bubble(t, all, func(t *testing.T, r *rig, p *fake.Provider, _ func() error) {
		hints := func(n int64) []numa.Hint {
			pod := podOf("pod", n)
			byContainer, byPod := r.Hints(pod, &pod.Spec.Containers[0]), r.Hints(pod, nil)
			assert.Equal(t, byContainer, byPod)
			return byContainer[port]
		}
		both := numa.Of(0, 1)
		assert.Equal(t, []numa.Hint{{Nodes: numa.Of(0), Preferred: true}, {Nodes: numa.Of(1), Preferred: true},
			{Nodes: both, Preferred: false}}, hints(2))
		assert.Equal(t, []numa.Hint{{Nodes: numa.Of(1), Preferred: true}, {Nodes: both, Preferred: false}}, hints(3))
		assert.Equal(t, []numa.Hint{{Nodes: both, Preferred: true}}, hints(4))
		assert.Equal(t, []numa.Hint{}, hints(6), "one device has no node")
		assert.Equal(t, []numa.Hint{}, hints(7))

		pod := podOf("placed", 2)
		require.NoError(t, r.Allocate(pod, &pod.Spec.Containers[0], numa.Hint{Nodes: numa.Of(1)}))
		assert.Equal(t, map[string][]string{"main": {"b0", "b1"}}, r.ids(pod))
		p.OnPrefer = func(_ context.Context, req devices.PreferRequest) ([]string, error) {
			assert.Equal(t, devices.PreferRequest{Available: []string{"b0", "b1", "b2"}, Count: 2},
				devices.PreferRequest{Available: req.Available, Count: req.Count})
			return []string{"a0", "b2"}, nil // a0 is far
		}
		require.NoError(t, r.prepare(pod))
		assert.Equal(t, map[string][]string{"main": {"b0", "b2"}}, r.ids(pod))
		assert.Equal(t, []numa.Hint{{Nodes: numa.Of(1), Preferred: true}, {Nodes: both, Preferred: false}},
			r.Hints(pod, &pod.Spec.Containers[0])[port], "it has them")

		far := podOf("far", 3) // one near, then others
		require.NoError(t, r.Allocate(far, &far.Spec.Containers[0], numa.Hint{Nodes: numa.Of(1)}))
		assert.Equal(t, map[string][]string{"main": {"a0", "a1", "b1"}}, r.ids(far))
		r.Refused(far)
		assert.Empty(t, r.ids(far))

		p.Set(list("x")...)
		synctest.Wait()
		one := podOf("one", 1)
		assert.Equal(t, map[string][]numa.Hint{port: nil}, r.Hints(one, nil))
	})
}

// A plugin cannot make the agent consider 2⁶⁴ sets of nodes.
func TestHintsOfManyNodes(t *testing.T) {
	var all []devices.Device
	for node := range numa.MaxNodes {
		all = append(all, on(node, "d"+string(rune('0'+node)))...)
	}
	bubble(t, all, func(t *testing.T, r *rig, _ *fake.Provider, _ func() error) {
		pod := podOf("pod", 1)
		assert.Equal(t, map[string][]numa.Hint{port: nil}, r.Hints(pod, nil))
	})
}

func TestNodeResources(t *testing.T) {
	bubble(t, append(list("a", "b"), sick("c")...), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
		assert.Equal(t, [2]int64{3, 2}, r.counts())
		assert.True(t, r.Manages(port))
		assert.False(t, r.Manages("example.com/other"))
		changes := r.node.StatusChanges()
		p.Set(append(list("b", "a"), sick("c")...)...)
		synctest.Wait()
		assert.Equal(t, changes, r.node.StatusChanges())
		p.Set(list("a", "b", "c", "a", "", "\xff")...)
		synctest.Wait()
		assert.Equal(t, [2]int64{3, 3}, r.counts())
		assert.Equal(t, changes+1, r.node.StatusChanges())
		assert.Contains(t, r.logged[len(r.logged)-1], `"count"=3`)

		require.ErrorIs(t, stop(), context.Canceled)
		assert.Equal(t, [2]int64{3, 0}, r.counts())
		time.Sleep(devices.LostGrace)
		assert.Equal(t, [2]int64{3, 0}, r.counts())
		time.Sleep(time.Second)
		assert.Equal(t, [2]int64{0, 0}, r.counts())
		assert.True(t, r.Manages(port))

		stopNext := r.serve(fake.New(port, list("z")...))
		assert.Equal(t, [2]int64{1, 1}, r.counts())
		_ = stopNext()
		r.restart()
		assert.Equal(t, [2]int64{0, 0}, r.counts(), "the resource is known, and has no devices yet")
	})
}

// The later provider of a resource takes the place of the earlier one, which takes it again when the later one ends.
func TestTwoProviders(t *testing.T) {
	bubble(t, list("a"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
		next := fake.New(port, list("a", "b")...)
		stopNext := r.serve(next)
		assert.Equal(t, [2]int64{2, 2}, r.counts())
		pod, waits := podOf("pod", 2), podOf("waits", 1)
		r.start(pod)
		assert.Equal(t, []string{"main[a b]"}, allocations(next))
		require.Error(t, r.admit(waits))

		p.Set(list("a", "c", "d")...)
		synctest.Wait()
		assert.Equal(t, [2]int64{2, 2}, r.counts(), "those of the later one")
		changes := r.node.StatusChanges()
		_ = stopNext()
		assert.Equal(t, [2]int64{3, 3}, r.counts(), "the last list of the earlier one")
		assert.Equal(t, changes+1, r.node.StatusChanges())
		assert.Equal(t, []types.UID{pod.UID}, r.node.Refreshes(), "b is gone")
		r.start(waits)
		assert.Equal(t, []string{"main[c]"}, allocations(p))

		stopNext = r.serve(next)
		_ = stop()
		assert.Equal(t, [2]int64{2, 2}, r.counts(), "the earlier one does not matter")
		_ = stopNext()
		assert.Equal(t, [2]int64{2, 0}, r.counts())
	})
}

// IDs are unique within a resource only.
func TestSameIDs(t *testing.T) {
	bubble(t, list("a"), func(t *testing.T, r *rig, _ *fake.Provider, _ func() error) {
		disks := fake.New(disk, list("a")...)
		stop := r.serve(disks)
		defer func() { _ = stop() }()
		pod, other := podOf("pod", 1), testpod.New("other", testpod.Container(wants("main", map[v1.ResourceName]int64{disk: 1})))
		r.start(pod)
		r.start(other)
		disks.Set(sick("a")...)
		synctest.Wait()
		assert.Equal(t, []types.UID{other.UID}, r.node.Refreshes())
	})
}

func TestHealthInTheStatus(t *testing.T) {
	bubble(t, list("a", "b"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
		pod := podOf("pod", 2)
		r.start(pod)
		status := func() v1.PodStatus {
			s := v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main",
				AllocatedResourcesStatus: []v1.ResourceStatus{{Name: "claim:x"}, {Name: port}}}, {Name: "other"}}}
			r.EditStatus(pod, &s)
			return s
		}
		want := func(a, b v1.ResourceHealthStatus) v1.PodStatus {
			return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main",
				AllocatedResourcesStatus: []v1.ResourceStatus{
					{Name: "claim:x"}, {Name: port, Resources: []v1.ResourceHealth{{ResourceID: "a", Health: a}, {ResourceID: "b", Health: b}}},
				}}, {Name: "other"}}}
		}
		assert.Equal(t, want(v1.ResourceHealthStatusHealthy, v1.ResourceHealthStatusHealthy), status())
		p.Set(append(list("a"), sick("b")...)...)
		synctest.Wait()
		assert.Equal(t, []types.UID{pod.UID}, r.node.Refreshes())
		assert.Equal(t, want(v1.ResourceHealthStatusHealthy, v1.ResourceHealthStatusUnhealthy), status())
		require.NoError(t, r.prepare(pod), "a container may start again with a device that has become unhealthy, as "+
			"with kubelet")
		p.Set(list("b")...)
		synctest.Wait()
		assert.Len(t, r.node.Refreshes(), 2)
		assert.Equal(t, want(v1.ResourceHealthStatusUnknown, v1.ResourceHealthStatusHealthy), status())
		_ = stop()
		assert.Equal(t, want(v1.ResourceHealthStatusUnknown, v1.ResourceHealthStatusHealthy), status())
	})
}

// After a restart of the agent and after a reboot.
func TestRestart(t *testing.T) {
	bubble(t, list("a", "b", "c"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
		pod, other := podOf("pod", 1), podOf("other", 1)
		r.start(pod)
		before, err := r.edits(pod, "main")
		require.NoError(t, err)
		_ = stop()

		r.restart() // of the agent
		require.NoError(t, r.admit(pod))
		require.NoError(t, r.prepare(pod, "main"))
		edits, err := r.edits(pod, "main")
		require.NoError(t, err, "it is started again without the provider")
		assert.Equal(t, before, edits)

		r.restart() // of the machine
		require.NoError(t, r.admit(pod))
		require.NoError(t, r.admit(other))
		require.ErrorContains(t, r.prepare(pod),
			`WaitingForDevices: container "main": waiting for the provider of example.com/port, which is not there since `)
		require.ErrorContains(t, r.prepare(other), "waiting for the provider of example.com/port")
		assert.Empty(t, r.node.Syncs())
		p.Set(append(sick("a"), list("b")...)...)
		stop = r.serve(p)
		defer func() { _ = stop() }()
		assert.Equal(t, []types.UID{other.UID, pod.UID}, r.node.Syncs())
		require.EqualError(t, r.prepare(pod),
			`WaitingForDevices: container "main": waiting for the device "a" of example.com/port: it is unhealthy`)
		require.NoError(t, r.prepare(other))
		assert.Equal(t, map[string][]string{"main": {"b"}}, r.ids(other))
		p.Set(list("b")...)
		synctest.Wait()
		require.ErrorContains(t, r.prepare(pod), `its provider does not have it now`)
		p.Set(list("a", "b")...)
		synctest.Wait()
		require.NoError(t, r.prepare(pod))
		calls := 0
		for _, c := range p.Calls() {
			if c.Method == "Allocate" {
				calls++
			}
		}
		assert.Equal(t, 2, calls, "each once")
	})
}

// Pods that were admitted while there was no provider can be too many when it is back.
func TestTooManyWait(t *testing.T) {
	bubble(t, list("a"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
		_ = stop()
		one, two := podOf("one", 1), podOf("two", 1)
		require.NoError(t, r.admit(one))
		require.NoError(t, r.admit(two))
		p.Set(sick("a")...)
		stop = r.serve(p)
		defer func() { _ = stop() }()
		require.ErrorContains(t, r.prepare(one), "waiting for healthy devices of example.com/port: no healthy "+
			"devices present")
		p.Set(list("a")...)
		synctest.Wait()
		require.NoError(t, r.prepare(one))
		var refusal *runtime.TerminalError
		require.ErrorAs(t, r.prepare(two), &refusal)
		assert.Equal(t, "Allocate failed due to requested number of devices unavailable for example.com/port. "+
			"Requested: 1, Available: 0, which is unexpected", refusal.Message)
	})
}

func TestFailWithoutProvider(t *testing.T) {
	bubble(t, list("a", "b"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
		pod := podOf("pod", 1)
		r.start(pod)
		_ = stop()
		r.opts.FailWithoutProvider = true
		r.restart()
		var refusal *runtime.TerminalError
		require.ErrorAs(t, r.admit(podOf("new", 1)), &refusal)
		assert.Equal(t, "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "+
			"example.com/port, which is unexpected", refusal.Message)
		require.NoError(t, r.admit(pod))
		require.ErrorAs(t, r.prepare(pod), &refusal)
		assert.Equal(t, runtime.TerminalError{Reason: "UnexpectedAdmissionError",
			Message: "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices " +
				"example.com/port, which is unexpected"}, *refusal)
		p.Set(list("b")...)
		stop = r.serve(p)
		require.ErrorAs(t, r.prepare(pod), &refusal)
		assert.Equal(t, "Allocate failed due to previously allocated devices are no longer healthy; cannot allocate "+
			"unhealthy devices example.com/port, which is unexpected", refusal.Message)
		_ = stop()
		require.NoError(t, r.prepare(pod, "main"), "it runs")
	})
}

// A pod that was started before there was ever a provider runs without devices until its container is started again.
func TestProviderAfterThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		pod := podOf("pod", 1)
		r.start(pod)
		stop := r.serve(fake.New(port, list("a")...))
		defer func() { _ = stop() }()
		require.NoError(t, r.prepare(pod, "main"))
		assert.Empty(t, r.ids(pod))
		require.NoError(t, r.prepare(pod))
		assert.Equal(t, map[string][]string{"main": {"a"}}, r.ids(pod))
	})
}

func TestProviderFails(t *testing.T) {
	boom := errors.New("boom")
	bubble(t, list("a", "b", "c", "d"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
		pod, second := podOf("pod", 1), podOf("second", 1)
		require.NoError(t, r.admit(pod))
		require.NoError(t, r.admit(second))
		p.OnPrefer = func(context.Context, devices.PreferRequest) ([]string, error) { return nil, boom }
		require.ErrorContains(t, r.prepare(pod), "the provider of example.com/port cannot choose devices: boom")
		p.OnPrefer = func(context.Context, devices.PreferRequest) ([]string, error) { panic("ouch") }
		require.ErrorContains(t, r.prepare(pod), "panic: ouch")
		p.OnPrefer = nil
		p.OnAllocate = func(ctx context.Context, req devices.Request) (runtime.ContainerEdits, error) {
			if req.Pod.Name == "second" {
				return runtime.ContainerEdits{}, nil
			}
			<-ctx.Done() // it hangs
			return runtime.ContainerEdits{}, ctx.Err()
		}
		began := time.Now()
		hung := make(chan error)
		go func() { hung <- r.prepare(pod) }()
		synctest.Wait()
		require.NoError(t, r.prepare(second), "the others do not wait")
		r.start(testpod.New("third", testpod.Containers("main")))
		require.ErrorContains(t, <-hung,
			`the provider of example.com/port cannot allocate the devices ["a"]: context deadline exceeded`)
		assert.Equal(t, 2*time.Minute, time.Since(began))
		p.OnAllocate = nil
		require.NoError(t, r.prepare(pod))
		p.OnPreStart = func(ctx context.Context, _ devices.Request) error { <-ctx.Done(); return ctx.Err() }
		began = time.Now()
		_, err := r.edits(pod, "main")
		require.ErrorContains(t, err,
			`the provider of example.com/port cannot prepare the start with the devices ["a"]: context deadline exceeded`)
		assert.Equal(t, 30*time.Second, time.Since(began))

		p.End(boom)
		synctest.Wait()
		require.ErrorIs(t, stop(), boom)
		assert.Equal(t, [2]int64{4, 0}, r.counts())
	})
}

// Providers of the options are started again.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := fake.New(port, list("a")...)
		r.opts.Providers = []devices.Provider{p}
		r.restart()
		waits := podOf("pod", 1)
		require.NoError(t, r.admit(waits), "it comes before the provider")
		require.ErrorContains(t, r.prepare(waits),
			"waiting for the provider of example.com/port, which is not there yet")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		require.NoError(t, r.prepare(waits))
		p.End(errors.New("boom"))
		synctest.Wait()
		assert.Equal(t, [2]int64{1, 0}, r.counts())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, [2]int64{1, 1}, r.counts())
		cancel()
		require.NoError(t, <-done)
	})
}

// Devices of pods that were refused after all, and of pods that have ended while no agent ran, are free.
func TestReclaim(t *testing.T) {
	bubble(t, list("a", "b"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
		refused := podOf("refused", 2)
		require.NoError(t, r.admit(refused))
		r.Refused(refused) // a later component has refused it
		old := podOf("old", 2)
		r.start(old)
		_ = stop()

		r.node.SetGone(old.UID)
		r.restart()
		stop = r.serve(p)
		defer func() { _ = stop() }()
		next := podOf("next", 2)
		r.start(next)
		assert.Empty(t, r.ids(old))
		r.restart()
		assert.Empty(t, r.ids(old))
		assert.NotEmpty(t, r.ids(next))
		require.NoError(t, r.Gone(t.Context(), lifecycle.GoneRequest{Pod: runtime.PodRef{UID: next.UID}}))
		assert.Empty(t, r.ids(next))
	})
}

func TestDamagedCheckpoint(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "no JSON": "{"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, list("a"), func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
				_ = stop()
				require.NoError(t, r.SaveForTest())
				require.NoError(t, os.WriteFile(r.path, []byte(content), 0o600))
				r.restart()
				assert.False(t, r.Manages(port))
				stop = r.serve(p)
				defer func() { _ = stop() }()
				r.start(podOf("pod", 1))
				require.Len(t, r.logged, 1)
				assert.Contains(t, r.logged[0], "The checkpoint of the devices cannot be used")
				kept, err := os.ReadFile(r.path + ".damaged")
				require.NoError(t, err)
				assert.Equal(t, content, string(kept))
			})
		})
	}
}

// A full disk keeps a pod from starting, and none from ending.
func TestCheckpointNotWritten(t *testing.T) {
	bubble(t, list("a"), func(t *testing.T, r *rig, _ *fake.Provider, _ func() error) {
		pod := podOf("pod", 1)
		require.NoError(t, r.admit(pod))
		require.NoError(t, os.MkdirAll(r.path, 0o700))
		require.NoError(t, os.WriteFile(r.path+"/x", nil, 0o600))
		require.ErrorContains(t, r.prepare(pod), "writing the checkpoint")
		r.end(pod)
		require.NoError(t, os.RemoveAll(r.path))
		next := podOf("next", 1)
		r.start(next)
		r.restart()
		assert.Empty(t, r.ids(pod))
		assert.NotEmpty(t, r.ids(next))
	})
}

// Two components of one container: as with kubelet, the first answer counts.
func TestMerge(t *testing.T) {
	bubble(t, list("a"), func(t *testing.T, r *rig, p *fake.Provider, _ func() error) {
		const other = "example.com/x"
		p.OnAllocate = func(context.Context, devices.Request) (runtime.ContainerEdits, error) {
			return runtime.ContainerEdits{
				Env: []v1.EnvVar{{Name: "A", Value: "1"}}, Annotations: map[string]string{"k": "1"},
				CDIDevices: []string{"v/c=1"}, CPUSet: "7",
				Devices: []runtime.Device{{HostPath: "/dev/1", ContainerPath: "/dev/x", Permissions: "rw"}},
				Mounts:  []runtime.BindMount{{HostPath: "/1", ContainerPath: "/m", ReadOnly: true}},
			}, nil
		}
		second := fake.New(other, list("b")...)
		second.OnAllocate = func(context.Context, devices.Request) (runtime.ContainerEdits, error) {
			return runtime.ContainerEdits{
				Env:         []v1.EnvVar{{Name: "B", Value: "2"}, {Name: "A", Value: "2"}},
				Annotations: map[string]string{"k": "2"}, CDIDevices: []string{"v/c=1", "v/c=2"},
				Devices: []runtime.Device{{HostPath: "/dev/2", ContainerPath: "/dev/x"}},
				Mounts:  []runtime.BindMount{{HostPath: "/2", ContainerPath: "/m"}},
			}, nil
		}
		stop := r.serve(second)
		defer func() { _ = stop() }()
		pod := testpod.New("pod", testpod.Container(wants("main", map[v1.ResourceName]int64{port: 1, other: 1})))
		r.start(pod)
		edits, err := r.edits(pod, "main")
		require.NoError(t, err)
		assert.Equal(t, runtime.ContainerEdits{
			Env:         []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
			Annotations: map[string]string{"k": "1"}, CDIDevices: []string{"v/c=1", "v/c=2"},
			Devices: []runtime.Device{{HostPath: "/dev/1", ContainerPath: "/dev/x", Permissions: "rw"}},
			Mounts:  []runtime.BindMount{{HostPath: "/1", ContainerPath: "/m", ReadOnly: true}},
		}, edits)
		assert.Equal(t, []devices.Allocation{{Resource: port, Devices: list("a")},
			{Resource: other, Devices: list("b")}}, r.Allocatable())
	})
}

// A resize changes no devices.
func TestResize(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig, _ *fake.Provider, _ func() error) {
		pod := podOf("pod", 1)
		_, err := r.Admit(lifecycle.AdmitRequest{Pod: pod, Held: pod})
		require.NoError(t, err)
	})
}

// With WaitForDevices a pod waits for a device that is not there yet, or that another pod has. Without, it is refused.
func TestWaitForDevices(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig, p *fake.Provider, stop func() error) {
		require.ErrorContains(t, r.admit(podOf("refused", 1)), "no healthy devices present")
		_ = stop()

		r.opts.WaitForDevices = true
		r.restart()
		defer r.serve(p)()
		one, two := podOf("one", 1), podOf("two", 1)
		waits := func(pod *v1.Pod, message string) {
			t.Helper()
			wait, failure := runtime.WithoutWaits(r.prepare(pod))
			require.NoError(t, failure)
			require.NotNil(t, wait)
			assert.Equal(t, runtime.WaitError{Reason: "WaitingForDevices", Message: `container "main": ` + message},
				*wait)
		}
		require.NoError(t, r.admit(one))
		require.NoError(t, r.admit(two))
		waits(one, "no healthy devices present; cannot allocate unhealthy devices example.com/port")
		waits(two, "no healthy devices present; cannot allocate unhealthy devices example.com/port")
		r.node.Reset()
		p.Set(list("a")...)
		synctest.Wait()
		assert.Equal(t, []types.UID{one.UID, two.UID}, r.node.Syncs())
		require.NoError(t, r.prepare(one))
		waits(two, "requested number of devices unavailable for example.com/port. Requested: 1, Available: 0")
		assert.Nil(t, r.Hints(two, &two.Spec.Containers[0])[port], "no preference: no policy refuses it")
		r.node.Reset()
		r.end(one)
		assert.Equal(t, []types.UID{two.UID}, r.node.Syncs())
		require.NoError(t, r.prepare(two))
	})
}
