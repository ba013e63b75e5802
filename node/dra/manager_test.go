package dra

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// A claim that two pods share is prepared once, and unprepared with the last of them.
func TestSharedClaim(t *testing.T) {
	node := nodefake.NewNode()
	m, api, d := withDriver(t, Options{})
	require.NoError(t, m.Join(node))
	var operations []string
	inUse := func() (last InUse) {
		for _, measured := range node.Measurements() {
			switch measured := measured.(type) {
			case Operation:
				operations = append(operations, fmt.Sprint(measured.Name, " ", measured.Err))
			case InUse:
				last = measured
			}
		}
		node.Reset()
		return last
	}
	a, b := podWith("a", "gpu"), podWith("b", "gpu")
	api.set("gpu", []string{"gpu.example.com"}, a, b)
	require.NoError(t, prepare(m, a, false))
	require.NoError(t, prepare(m, b, false))
	assert.Equal(t, []string{"prepare gpu"}, d.took())
	assert.Equal(t, []string{"gpu.example.com=gpu"}, cdi(t, m, a))
	reads := api.reads
	require.NoError(t, prepare(m, a, true))
	assert.Equal(t, reads, api.reads, "a later sync needs nothing")
	require.NoError(t, end(m, a))
	assert.Empty(t, d.took())
	assert.Equal(t, InUse{ByDriver: map[string]int{"gpu.example.com": 1}, All: 1}, inUse())
	require.NoError(t, end(m, b))
	require.NoError(t, end(m, b))
	assert.Equal(t, []string{"unprepare gpu"}, d.took())
	assert.Equal(t, InUse{ByDriver: map[string]int{}}, inUse())
	assert.Equal(t, []string{"PrepareResources <nil>", "PrepareResources <nil>", "UnprepareResources <nil>",
		"UnprepareResources <nil>"}, operations)
	_, err := m.EditContainer(t.Context(), b, &b.Spec.Containers[0])
	assert.EqualError(t, err, "ResourceClaim gpu is not prepared for pod b")
}

// slowNode is a node whose first measurement of the claims in use takes until release is closed.
type slowNode struct {
	*nodefake.Node
	first            sync.Once
	entered, release chan struct{}
}

func (n *slowNode) Measure(m runtime.Measurement) {
	if _, ok := m.(InUse); ok {
		n.first.Do(func() {
			close(n.entered)
			<-n.release
		})
	}
	n.Node.Measure(m)
}

// No operation waits for the measurement of another one, and the last measurement of the claims in use is the latest.
func TestSlowMeasurement(t *testing.T) {
	node := &slowNode{Node: nodefake.NewNode(), entered: make(chan struct{}), release: make(chan struct{})}
	m, api, _ := withDriver(t, Options{})
	require.NoError(t, m.Join(node))
	a, b, c := podWith("a", "one"), podWith("b", "two"), podWith("c", "three")
	for name, pod := range map[string]*v1.Pod{"one": a, "two": b, "three": c} {
		api.set(name, []string{"gpu.example.com"}, pod)
	}
	done := make(chan error, 1)
	go func() { done <- prepare(m, a, false) }()
	<-node.entered
	require.NoError(t, prepare(m, b, false))
	require.NoError(t, prepare(m, c, false))
	close(node.release)
	require.NoError(t, <-done)
	var inUse []runtime.Measurement
	for _, measured := range node.Measurements() {
		if _, ok := measured.(InUse); ok {
			inUse = append(inUse, measured)
		}
	}
	assert.Equal(t, []runtime.Measurement{InUse{ByDriver: map[string]int{"gpu.example.com": 1}, All: 1},
		InUse{ByDriver: map[string]int{"gpu.example.com": 3}, All: 3}}, inUse)
}

// An agent that is killed after a claim was prepared and before the pod starts prepares it again. One that runs needs
// neither the driver nor the API server.
func TestRestart(t *testing.T) {
	m, api, d := withDriver(t, Options{})
	a := podWith("a", "gpu")
	api.set("gpu", []string{"gpu.example.com"}, a)
	require.NoError(t, prepare(m, a, false))
	dir := filepath.Dir(m.path(stateName))

	next := newManager(t, dir, api, Options{})
	require.EqualError(t, prepare(next, a, false),
		"prepare dynamic resources: DRA driver gpu.example.com is not registered")
	next.Add("gpu.example.com", d)
	require.NoError(t, prepare(next, a, false))
	assert.Equal(t, []string{"prepare gpu", "prepare gpu"}, d.took())
	assert.Equal(t, []string{"gpu.example.com=gpu"}, cdi(t, next, a), "devices are replaced, not added")

	api.claims = nil
	last := newManager(t, dir, api, Options{})
	require.NoError(t, prepare(last, a, true))
	assert.Equal(t, []string{"gpu.example.com=gpu"}, cdi(t, last, a))
	require.EqualError(t, end(last, a), "unprepare dynamic resources: NodeUnprepareResources of driver "+
		"gpu.example.com: DRA driver gpu.example.com is not registered")
}

func TestWhatIsRefused(t *testing.T) {
	pod := podWith("a", "gpu")
	template := "template"
	for name, c := range map[string]struct {
		change func(m *Manager, api *apiServer, pod *v1.Pod)
		want   string
	}{
		"no claim":      {func(_ *Manager, api *apiServer, _ *v1.Pod) { api.claims = nil }, `fetch ResourceClaim gpu: resourceclaims.resource.k8s.io "gpu" not found`},
		"not allocated": {func(_ *Manager, api *apiServer, _ *v1.Pod) { api.claims["gpu"].Status.Allocation = nil }, "ResourceClaim gpu is not allocated"},
		"not reserved": {func(_ *Manager, api *apiServer, _ *v1.Pod) { api.claims["gpu"].Status.ReservedFor = nil },
			"this pod (uid-a) is not allowed to use ResourceClaim gpu (uid-gpu): the claim is not reserved for it"},
		"no driver": {func(m *Manager, _ *apiServer, _ *v1.Pod) { m.drivers["gpu.example.com"][0].Remove() }, "DRA driver gpu.example.com is not registered"},
		"template not done": {func(_ *Manager, _ *apiServer, p *v1.Pod) {
			p.Spec.ResourceClaims[0] = v1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: &template}
		}, `the ResourceClaim for "gpu", from template "template", is not created yet`},
		"claim of another pod": {func(_ *Manager, _ *apiServer, p *v1.Pod) {
			p.Spec.ResourceClaims[0] = v1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: &template}
			p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("gpu")}}
		}, "ResourceClaim gpu was not created for this pod: the pod does not own it"},
		"no reference": {func(_ *Manager, _ *apiServer, p *v1.Pod) { p.Spec.ResourceClaims[0] = v1.PodResourceClaim{Name: "gpu"} },
			`resource claim "gpu" of the pod names neither a ResourceClaim nor a template`},
		"an older claim": {func(m *Manager, _ *apiServer, _ *v1.Pod) {
			_ = m.load()
			m.state.add(Claim{"default", "gpu", "old"}, nil, "other")
		}, "old ResourceClaim with same name gpu and different UID old is still prepared, for pods [other]"},
	} {
		t.Run(name, func(t *testing.T) {
			m, api, d := withDriver(t, Options{})
			node := nodefake.NewNode()
			require.NoError(t, m.Join(node))
			pod := pod.DeepCopy()
			api.set("gpu", []string{"gpu.example.com"}, pod)
			c.change(m, api, pod)
			require.EqualError(t, prepare(m, pod, false), "prepare dynamic resources: "+c.want)
			events := node.Events()
			require.Len(t, events, 1)
			assert.Equal(t, "FailedPrepareDynamicResources: Failed to prepare dynamic resources: "+c.want,
				events[0].Reason+": "+events[0].Message)
			require.NoError(t, end(m, pod), "the pod ends without the driver")
			assert.Empty(t, d.took())
		})
	}
}

// A claim that was intentionally not made for a template is no claim.
func TestClaimThatIsNotNeeded(t *testing.T) {
	m, _, _ := withDriver(t, Options{})
	pod := podWith("a", "gpu")
	pod.Spec.ResourceClaims[0] = v1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: new("template")}
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu"}}
	require.NoError(t, prepare(m, pod, false))
	assert.Empty(t, cdi(t, m, pod))
	require.NoError(t, end(m, pod))
}

// answers is a driver that returns what it is told to.
type answers struct {
	prepared map[types.UID]Prepared
	released map[types.UID]error
	err      error
}

func (a *answers) Prepare(context.Context, []Claim) (map[types.UID]Prepared, error) {
	if a.prepared == nil && a.err == nil {
		panic("!")
	}
	return a.prepared, a.err
}

func (a *answers) Unprepare(context.Context, []Claim) (map[types.UID]error, error) {
	return a.released, a.err
}

func TestNonsenseOfDrivers(t *testing.T) {
	m, api, _ := withDriver(t, Options{})
	a := podWith("a", "gpu")
	api.set("gpu", []string{"odd.example.com"}, a)
	d := &answers{}
	m.Add("odd.example.com", d)
	const of = "prepare dynamic resources: NodePrepareResources of driver odd.example.com"
	assert.EqualError(t, prepare(m, a, false), of+": panic: !")
	d.err = errTest
	assert.EqualError(t, prepare(m, a, false), of+": it fails")
	*d = answers{prepared: map[types.UID]Prepared{}}
	assert.EqualError(t, prepare(m, a, false), of+": the driver has skipped ResourceClaim gpu")
	d.prepared["uid-gpu"], d.prepared["x"] = Prepared{}, Prepared{}
	assert.EqualError(t, prepare(m, a, false), of+`: the driver has returned a result for an unknown claim, UID "x"`)
	d.prepared = map[types.UID]Prepared{"uid-gpu": {Err: errTest}}
	assert.EqualError(t, prepare(m, a, false), of+" failed for ResourceClaim gpu: it fails")
	assert.Empty(t, onDisk(t, filepath.Dir(m.path(stateName)))["gpu"].Drivers["odd.example.com"])

	assert.EqualError(t, end(m, a), "unprepare dynamic resources: NodeUnprepareResources of driver odd.example.com: "+
		"the driver has skipped ResourceClaim gpu")
	d.released = map[types.UID]error{"uid-gpu": errTest}
	assert.EqualError(t, end(m, a), "unprepare dynamic resources: NodeUnprepareResources of driver odd.example.com "+
		"failed for ResourceClaim gpu: it fails")
	d.released["uid-gpu"] = nil
	assert.NoError(t, end(m, a))
}

// A container uses all devices of a claim, those of one request, or those of an extended resource.
func TestDevicesOfAContainer(t *testing.T) {
	m, api, _ := withDriver(t, Options{})
	pod := podWith("a", "gpu", "net")
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended",
		RequestMappings: []v1.ContainerExtendedResourceRequest{
			{ContainerName: "main", ResourceName: "example.com/gpu", RequestName: "container-0-request-0"},
			{ContainerName: "other", ResourceName: "example.com/gpu", RequestName: "container-1-request-0"},
			{ContainerName: "main", ResourceName: "example.com/not-requested", RequestName: "container-1-request-0"},
		}}
	devices := map[types.UID]Prepared{
		"uid-gpu": {Devices: []Device{
			{Name: "0", Requests: []string{"big"}, CDIDevices: []string{"v/gpu=0"}}, {Name: "1", Requests: []string{"small/one"}, CDIDevices: []string{"v/gpu=1", "v/all=x"}},
			{Name: "2", CDIDevices: []string{"v/all=x"}}, {Name: "3", Requests: []string{"big"}},
		}},
		"uid-net":      {Devices: []Device{{Name: "0", CDIDevices: []string{"v/net=0"}}}},
		"uid-extended": {Devices: []Device{{Requests: []string{"container-0-request-0"}, CDIDevices: []string{"v/ext=0"}}, {Requests: []string{"container-1-request-0"}, CDIDevices: []string{"v/ext=1"}}}},
	}
	m.Add("gpu.example.com", &answers{prepared: devices}).SetConnected(true)
	for _, name := range []string{"gpu", "net", "extended"} {
		api.set(name, []string{"gpu.example.com"}, pod)
	}
	require.NoError(t, prepare(m, pod, false))
	requests := v1.ResourceList{"example.com/gpu": *quantity("1")}
	for name, c := range map[string]struct {
		container v1.Container
		want      []string
	}{
		"nothing":        {v1.Container{Name: "main"}, nil},
		"whole claims":   {uses2("main", "gpu", "", "net", ""), []string{"v/gpu=0", "v/gpu=1", "v/all=x", "v/net=0"}},
		"a request":      {uses2("main", "gpu", "big", "gpu", "big"), []string{"v/gpu=0", "v/all=x"}},
		"subrequests":    {uses2("main", "gpu", "small", "net", "any"), []string{"v/gpu=1", "v/all=x", "v/net=0"}},
		"extended":       {v1.Container{Name: "main", Resources: v1.ResourceRequirements{Requests: requests}}, []string{"v/ext=0"}},
		"of the other":   {v1.Container{Name: "other", Resources: v1.ResourceRequirements{Requests: requests}}, []string{"v/ext=1"}},
		"of nobody else": {v1.Container{Name: "third", Resources: v1.ResourceRequirements{Requests: requests}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			edits, err := m.EditContainer(t.Context(), pod, &c.container)
			require.NoError(t, err)
			assert.Equal(t, c.want, edits.CDIDevices)
		})
	}
	unknown := uses2("main", "typo", "", "gpu", "")
	_, err := m.EditContainer(t.Context(), pod, &unknown)
	assert.EqualError(t, err, `container main uses the resource claim "typo", which the pod does not have`)
}

func uses2(container, a, requestA, b, requestB string) v1.Container {
	return v1.Container{Name: container,
		Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: a, Request: requestA},
			{Name: b, Request: requestB}}}}
}

// Pods that share claims start and end at the same time: calls for one claim do not overlap, and a claim stays prepared
// while a pod uses it.
func TestConcurrentPods(t *testing.T) {
	m, api, d := withDriver(t, Options{})
	var pods []*v1.Pod
	for i := range 8 {
		pods = append(pods, podWith(fmt.Sprint(i), []string{"x", "y", "z"}[i%3], []string{"y", "z", "x"}[i%3]))
	}
	for _, name := range []string{"x", "y", "z"} {
		api.set(name, []string{"gpu.example.com"}, pods...)
	}
	var wg sync.WaitGroup
	for _, pod := range pods {
		wg.Go(func() {
			for range 50 {
				if !assert.NoError(t, prepare(m, pod, false)) {
					return
				}
				for _, c := range pod.Spec.ResourceClaims {
					assert.True(t, d.has(c.Name))
				}
				if !assert.NoError(t, end(m, pod)) {
					return
				}
			}
		})
	}
	wg.Wait()
	assert.Zero(t, d.overlaps)
	assert.Empty(t, d.prepared)
	assert.Empty(t, onDisk(t, filepath.Dir(m.path(stateName))))
	assert.Empty(t, m.locks.held)
}

// A pod is released by its worker and by the sweep at the same time. The later one must not have the claim unprepared
// of another pod that uses it since.
func TestTwoReleasesOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, api, d := withDriver(t, Options{})
		a, b := podWith("a", "x"), podWith("b", "x")
		api.set("x", []string{"gpu.example.com"}, a, b)
		for _, next := range []*v1.Pod{nil, b} {
			require.NoError(t, prepare(m, a, false))
			unlock, err := m.locks.lock(t.Context(), []key{{"default", "x"}})
			require.NoError(t, err)
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { assert.NoError(t, end(m, a)) })
			}
			synctest.Wait() // both know the claims of the pod, and wait
			if next != nil {
				m.mu.Lock()
				m.state.add(m.state.claims[key{"default", "x"}].Claim, map[string][]resourceapi.SkipNodeOperation{d.name: nil}, next.UID)
				m.mu.Unlock()
			}
			unlock()
			wg.Wait()
			assert.Equal(t, next != nil, d.has("x"))
		}
	})
}

// A driver that hangs holds up only the pods with its claims, and those only until their call ends.
func TestDriverThatHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{}
		m := newManager(t, dir, api, Options{})
		m.Add("good", newDriverOf("good")).SetConnected(true)
		m.Add("hangs", hangs{}).SetConnected(true)
		a, b, other := podWith("a", "h"), podWith("b", "h", "g"), podWith("other", "g")
		api.set("h", []string{"hangs"}, a, b)
		api.set("g", []string{"good"}, b, other)
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { assert.ErrorIs(t, prepare(m, a, false), context.DeadlineExceeded) })
		synctest.Wait()
		assert.NoError(t, prepare(m, other, false))
		assert.Zero(t, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.Prepare(ctx, lifecycle.PrepareRequest{Pod: b})
		assert.ErrorContains(t, err, "waiting for another pod with ResourceClaim h")
		wg.Wait()
		assert.Equal(t, 45*time.Second, time.Since(began))
		assert.Empty(t, m.locks.held)
	})
}

type hangs struct{}

func (hangs) Prepare(ctx context.Context, _ []Claim) (map[types.UID]Prepared, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hangs) Unprepare(ctx context.Context, _ []Claim) (map[types.UID]error, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// On a full disk no pod starts, and no driver is called for one. A pod that ends does.
func TestFullDisk(t *testing.T) {
	m, api, d := withDriver(t, Options{})
	write := m.file.Write
	a, b := podWith("a", "x"), podWith("b", "y")
	api.set("x", []string{"gpu.example.com"}, a)
	api.set("y", []string{"gpu.example.com"}, b)
	require.NoError(t, prepare(m, a, false))
	m.file.Write = func(string, []byte) error { return errors.New("no space left on device") }
	assert.EqualError(t, prepare(m, b, false), "prepare dynamic resources: writing the checkpoint "+m.path(stateName)+
		": no space left on device")
	assert.NoError(t, end(m, b))
	assert.NoError(t, end(m, a))
	assert.Equal(t, []string{"prepare x", "unprepare x"}, d.took())
	assert.Len(t, onDisk(t, filepath.Dir(m.path(stateName))), 1)
	m.file.Write = write
	require.NoError(t, m.file.Save())
	assert.Empty(t, onDisk(t, filepath.Dir(m.path(stateName))))
}

func TestDamagedState(t *testing.T) {
	m, api, d := withDriver(t, Options{})
	a := podWith("a", "gpu")
	api.set("gpu", []string{"gpu.example.com"}, a)
	require.NoError(t, os.WriteFile(m.path(stateName), []byte(`{"Data":"{}","Checksum":1}`), 0o600))
	require.NoError(t, prepare(m, a, true), "the claim of a pod that runs is prepared again")
	assert.Equal(t, []string{"prepare gpu"}, d.took())
	kept, err := os.ReadFile(m.path(stateName) + ".damaged")
	require.NoError(t, err)
	assert.JSONEq(t, `{"Data":"{}","Checksum":1}`, string(kept))
	require.NoError(t, end(m, a))
}

// A state that cannot be read at all is an error of the pods that need it.
func TestStateThatCannotBeRead(t *testing.T) {
	m, api, _ := withDriver(t, Options{})
	a := podWith("a", "gpu")
	api.set("gpu", []string{"gpu.example.com"}, a)
	require.NoError(t, os.Symlink(m.path(stateName), m.path(stateName))) // a loop
	assert.ErrorContains(t, prepare(m, a, true), "the state of dynamic resources")
	assert.Error(t, end(m, a))
	assert.NoError(t, end(m, podWith("b")))
	require.NoError(t, os.Remove(m.path(stateName)))
	assert.NoError(t, prepare(m, a, true))
}

func TestNew(t *testing.T) {
	_, err := New("", nil, Options{CallTimeout: -1})
	assert.EqualError(t, err,
		"dra: the directory of the state is empty\nthe source of claims is nil\na duration is negative")
}
