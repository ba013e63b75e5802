package devices_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Random pods of two resources, providers that change, fail, end and replace each other, and restarts: no device is
// given twice, no pod loses a device, none is lost, and no container is made ready with an unhealthy device or one that
// its provider has not listed. A pod that waits for a device while others are free was to be synced again.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { synctest.Test(t, func(t *testing.T) { runModel(t, rt) }) })
}

// tracked is a pod of the model.
type tracked struct {
	pod *v1.Pod
	// ready is what it had when it was prepared.
	ready map[string][]string
	// made are the devices that containers were made ready with.
	made map[string]bool
	// waits is the error of Prepare that it waits with, unless it was synced again since.
	waits string
}

type model struct {
	*rapid.T
	r         *rig
	resources []*modelResource
	pods      map[string]*tracked
	next      int
}

// modelResource is a resource, whose devices have IDs with the prefix.
type modelResource struct {
	name   v1.ResourceName
	prefix string
	served []*modelProvider // in the order in which they came
	list   []devices.Device // of the provider that is used, or was the last one
}

// modelProvider is a provider that is served.
type modelProvider struct {
	late
	stop   func() error
	listed bool
	list   []devices.Device
}

// used returns the last provider that has delivered its devices.
func (r *modelResource) used() *modelProvider {
	for _, p := range slices.Backward(r.served) {
		if p.listed {
			return p
		}
	}
	return nil
}

// settle waits until what was done is over.
func (r *modelResource) settle() {
	synctest.Wait()
	if p := r.used(); p != nil {
		r.list = p.list
	}
}

const disk = "example.com/disk"

func runModel(t *testing.T, rt *rapid.T) {
	m := &model{T: rt, r: newRig(t), resources: []*modelResource{{name: disk, prefix: "c"}, {name: port, prefix: "d"}},
		pods: map[string]*tracked{}}
	for _, res := range m.resources {
		m.serve(res, m.devices(res), true)
	}
	rt.Repeat(map[string]func(*rapid.T){
		"": m.check,
		"devices": func(*rapid.T) {
			res := m.resource()
			m.set(res, m.provider(res), m.devices(res))
		},
		"health": m.health,
		"serve": func(t *rapid.T) {
			res := m.resource()
			m.endProviders(res)
			m.serve(res, res.list, rapid.Bool().Draw(t, "lists"))
		},
		"another":      func(t *rapid.T) { res := m.resource(); m.serve(res, m.devices(res), rapid.Bool().Draw(t, "lists")) },
		"list":         func(*rapid.T) { res := m.resource(); m.deliver(res, m.provider(res)) },
		"end provider": func(*rapid.T) { res := m.resource(); m.endProvider(res, m.provider(res)) },
		"admit":        m.admit, "admit another": m.admit, "prepare": m.prepare, "prepare another": m.prepare, "end": m.end, "restart": m.restart,
	})
	for name := range m.pods {
		m.r.end(m.pods[name].pod)
	}
	for _, res := range m.resources {
		var all []devices.Device
		for i := range 8 {
			all = append(all, devices.Device{ID: fmt.Sprint(res.prefix, i)})
		}
		m.endProviders(res)
		m.serve(res, all, true)
	}
	pod := testpod.New("all", testpod.Container(wants("main", map[v1.ResourceName]int64{port: 8, disk: 8})))
	require.NoError(rt, m.r.admit(pod), "nothing is lost")
	for _, res := range m.resources {
		m.endProviders(res)
	}
}

// set has the provider deliver the devices, now or when it delivers its first list.
func (m *model) set(res *modelResource, p *modelProvider, list []devices.Device) {
	if p == nil {
		return
	}
	p.list = list
	p.Set(list...)
	res.settle()
}

// health changes the health of the devices of a pod.
func (m *model) health(t *rapid.T) {
	tr := m.pick(t)
	if tr == nil {
		return
	}
	has := slices.Concat(slices.Collect(maps.Values(m.r.ids(tr.pod)))...)
	for _, res := range m.resources {
		list := slices.Clone(res.list)
		for i := range list {
			if contains(has, []string{list[i].ID}) {
				list[i].Unhealthy = !list[i].Unhealthy
			}
		}
		m.set(res, res.used(), list)
	}
}

// provider returns one of those that are served.
func (m *model) provider(res *modelResource) *modelProvider {
	if len(res.served) == 0 {
		return nil
	}
	return rapid.SampledFrom(res.served).Draw(m.T, "provider")
}

func (m *model) resource() *modelResource {
	return rapid.SampledFrom(m.resources).Draw(m.T, "resource")
}

// serve serves a new provider of the resource, beside those that are served.
func (m *model) serve(res *modelResource, list []devices.Device, lists bool) {
	p := &modelProvider{late: newLate(res.name, list...), list: list}
	usable := func(ids []string) {
		if res.used() != p {
			m.Fatalf("a provider of %s is called that is replaced, or has not delivered its devices", res.name)
		}
		for _, id := range ids {
			if !slices.ContainsFunc(res.list, func(d devices.Device) bool { return d.ID == id && !d.Unhealthy }) {
				m.Fatalf("device %s is missing or unhealthy: %v", id, res.list)
			}
		}
	}
	p.OnPrefer = func(_ context.Context, req devices.PreferRequest) ([]string, error) {
		if len(req.Available) <= req.Count || len(req.Required) > req.Count || !contains(req.Available, req.Required) {
			m.Fatalf("no choice: %+v", req)
		}
		usable(req.Available)
		liked := rapid.SliceOf(rapid.SampledFrom(append(req.Available, "nonsense"))).Draw(m.T, "liked")
		return liked, draw(m.T, "prefer fails", 8)
	}
	p.OnAllocate = func(_ context.Context, req devices.Request) (runtime.ContainerEdits, error) {
		usable(req.IDs)
		err := draw(m.T, "allocate fails", 8)
		if err == nil {
			for _, id := range req.IDs {
				m.pods[req.Pod.Name].made[id] = true
			}
		}
		return runtime.ContainerEdits{}, err
	}
	p.stop = m.r.serve(p)
	res.served = append(res.served, p)
	if lists {
		m.deliver(res, p)
	}
}

// deliver has the provider deliver its devices.
func (m *model) deliver(res *modelResource, p *modelProvider) {
	if p != nil && !p.listed {
		p.listed = true
		close(p.due)
		res.settle()
	}
}

func (m *model) endProvider(res *modelResource, p *modelProvider) {
	if p != nil {
		_ = p.stop()
		res.served = slices.DeleteFunc(res.served, func(other *modelProvider) bool { return other == p })
		res.settle()
	}
}

func (m *model) endProviders(res *modelResource) {
	for len(res.served) > 0 {
		m.endProvider(res, res.served[0])
	}
}

func draw(t *rapid.T, what string, oneIn int) error {
	if rapid.IntRange(0, oneIn).Draw(t, what) == oneIn {
		return errors.New("it fails")
	}
	return nil
}

func contains(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

func (m *model) devices(res *modelResource) (out []devices.Device) {
	for i := range rapid.SampledFrom([]int{8, 4, 2, 0}).Draw(m.T, "number") {
		out = append(out, devices.Device{
			ID: fmt.Sprint(res.prefix, i), Unhealthy: rapid.IntRange(0, 4).Draw(m.T, "health") == 0,
			Nodes: rapid.SampledFrom([]numa.Nodes{0, numa.Of(0), numa.Of(1), numa.Of(0, 1)}).Draw(m.T, "nodes"),
		})
	}
	return out
}

// restart is one of the agent.
func (m *model) restart(*rapid.T) {
	for _, res := range m.resources {
		m.endProviders(res)
	}
	m.r.restart()
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		tr := m.pods[name]
		tr.waits = "" // all pods are synced
		if err := m.r.admit(tr.pod); err != nil {
			require.Nil(m.T, tr.ready, "%v", err)
			m.r.end(tr.pod)
			delete(m.pods, name)
		}
	}
	for _, res := range m.resources {
		m.serve(res, res.list, rapid.Bool().Draw(m.T, "lists"))
	}
}

func (m *model) admit(t *rapid.T) {
	m.next++
	var options []testpod.Option
	for i := range rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "containers") {
		c := wants(fmt.Sprintf("c%d", i), map[v1.ResourceName]int64{
			port: rapid.SampledFrom([]int64{0, 1, 1, 2, 4}).Draw(t, "ports"),
			disk: rapid.SampledFrom([]int64{0, 0, 1, 2}).Draw(t, "disks"),
		})
		options = append(options, rapid.SampledFrom([]testpod.Option{testpod.Init(c), testpod.Sidecar(c),
			testpod.Container(c)}).Draw(t, "kind"))
	}
	pod := testpod.New(fmt.Sprintf("p%d", m.next), options...)
	near := rapid.SampledFrom([]numa.Nodes{0, numa.Of(0), numa.Of(1), numa.Of(0, 1)}).Draw(t, "near")
	for _, c := range podspec.Containers(&pod.Spec) {
		for _, hint := range m.r.Hints(pod, c)[port] {
			require.NotZero(t, hint.Nodes)
		}
		if err := m.r.Allocate(pod, c, numa.Hint{Nodes: near}); err != nil {
			m.r.Refused(pod)
			require.Empty(t, m.r.ids(pod))
			return
		}
	}
	require.NoError(t, m.r.admit(pod), "it has its devices")
	if draw(t, "refused", 8) != nil { // by another component
		m.r.Refused(pod)
		return
	}
	m.pods[pod.Name] = &tracked{pod: pod, made: map[string]bool{}}
}

func (m *model) pick(t *rapid.T) *tracked {
	if len(m.pods) == 0 {
		return nil
	}
	return m.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(m.pods))).Draw(t, "pod")]
}

func (m *model) prepare(t *rapid.T) {
	tr := m.pick(t)
	if tr == nil {
		return
	}
	var running []string
	if tr.ready != nil && rapid.Bool().Draw(t, "runs") {
		running = []string{"c0"}
	}
	tr.waits = ""
	err := m.r.prepare(tr.pod, running...)
	if err == nil {
		tr.ready = m.r.ids(tr.pod)
	} else {
		tr.waits = err.Error()
		if _, id := waitsFor(tr.waits); id != "" && !tr.made[id] {
			for _, res := range m.resources {
				require.True(t, res.used() != nil || res.prefix != id[:1], tr.waits)
			}
		}
	}
	if errors.As(err, new(*runtime.TerminalError)) {
		require.Nil(t, tr.ready, "%v", err)
		m.r.end(tr.pod)
		delete(m.pods, tr.pod.Name)
	}
}

// waitsFor returns the container and the device that the error of Prepare is about, if the pod waits for a device.
func waitsFor(message string) (container, id string) {
	match := regexp.MustCompile(`devices of container "(c\d)" .*: waiting for the device "(.\d)" `).FindStringSubmatch(
		message)
	if match == nil {
		return "", ""
	}
	return match[1], match[2]
}

// waits asserts that a pod does not wait for a device while others are free, unless a container was made ready with
// that device, or the pod was to be synced.
func (m *model) waits(t *rapid.T, tr *tracked) {
	container, id := waitsFor(tr.waits)
	if id == "" || tr.made[id] {
		return
	}
	bad, free := 0, 0
	for _, res := range m.resources {
		if res.prefix != id[:1] {
			continue
		}
		if res.used() == nil { // its provider has ended since
			return
		}
		owned := map[string]bool{}
		for _, other := range m.pods {
			for _, ids := range m.r.ids(other.pod) {
				for _, id := range ids {
					owned[id] = true
				}
			}
		}
		healthy := map[string]bool{}
		for _, d := range res.list {
			healthy[d.ID] = !d.Unhealthy
			if !owned[d.ID] && !d.Unhealthy {
				free++
			}
		}
		for _, id := range m.r.ids(tr.pod)[container] {
			if id[:1] == res.prefix && !healthy[id] && !tr.made[id] {
				bad++
			}
		}
	}
	require.Less(t, free, bad, tr.waits)
}

func (m *model) end(t *rapid.T) {
	if tr := m.pick(t); tr != nil {
		m.r.end(tr.pod)
		delete(m.pods, tr.pod.Name)
	}
}

func (m *model) check(t *rapid.T) {
	owner := map[string]string{}
	for name, tr := range m.pods {
		if slices.Contains(m.r.node.Syncs(), tr.pod.UID) {
			tr.waits = ""
		}
		m.waits(t, tr)
		has := m.r.ids(tr.pod)
		for container, ids := range has {
			for _, id := range ids {
				if other, ok := owner[id]; ok && other != name {
					t.Fatalf("device %s is given to %s and %s", id, name, other)
				}
				owner[id] = name
			}
			require.True(t, slices.IsSorted(ids))
			require.Len(t, slices.Compact(slices.Clone(ids)), len(ids), "%s", container)
		}
		if tr.ready != nil {
			require.Equal(t, tr.ready, has)
			for _, c := range podspec.Containers(&tr.pod.Spec) {
				ports, disks := c.Resources.Limits[port], c.Resources.Limits[disk]
				require.Len(t, has[c.Name], int(ports.Value()+disks.Value()))
			}
			exclusive(t, tr.pod, has)
		}
	}
}

// exclusive asserts that main containers and sidecars have devices of their own.
func exclusive(t *rapid.T, pod *v1.Pod, has map[string][]string) {
	longLived := map[string]string{}
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind == podspec.InitContainer && !podspec.IsSidecar(c) {
			continue
		}
		for _, id := range has[c.Name] {
			require.Empty(t, longLived[id], "device %s of %s", id, c.Name)
			longLived[id] = c.Name
		}
	}
}
