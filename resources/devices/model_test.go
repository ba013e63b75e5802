package devices_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/resources/devices"
	"github.com/kubeletkit/kubeletkit/resources/devices/fake"
	"github.com/kubeletkit/kubeletkit/resources/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Random pods, providers that change, fail and end, and restarts: no device is given twice, no pod loses a device, and none is lost.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { synctest.Test(t, func(t *testing.T) { runModel(t, rt) }) })
}

// tracked is a pod of the model.
type tracked struct {
	pod *v1.Pod
	// ready is what it had when it was prepared.
	ready map[string][]string
}

type model struct {
	*rapid.T
	r    *rig
	p    *fake.Provider
	stop func() error
	pods map[string]*tracked
	next int
}

func runModel(t *testing.T, rt *rapid.T) {
	m := &model{T: rt, r: newRig(t), p: fake.New(port), pods: map[string]*tracked{}}
	m.p.OnPrefer = func(_ context.Context, req devices.PreferRequest) ([]string, error) {
		if len(req.Available) <= req.Count || len(req.Required) > req.Count || !contains(req.Available, req.Required) {
			rt.Fatalf("no choice: %+v", req)
		}
		liked := rapid.SliceOf(rapid.SampledFrom(append(req.Available, "nonsense"))).Draw(rt, "liked")
		return liked, draw(rt, "prefer fails", 8)
	}
	m.p.OnAllocate = func(context.Context, devices.Request) (runtime.ContainerEdits, error) {
		return runtime.ContainerEdits{}, draw(rt, "allocate fails", 8)
	}
	m.serve()
	rt.Repeat(map[string]func(*rapid.T){
		"":             m.check,
		"devices":      func(*rapid.T) { m.p.Set(m.devices()...); synctest.Wait() },
		"serve":        func(*rapid.T) { m.endProvider(); m.serve() },
		"end provider": func(*rapid.T) { m.endProvider() },
		"admit":        m.admit, "prepare": m.prepare, "end": m.end, "restart": m.restart,
	})
	for name := range m.pods {
		m.r.end(m.pods[name].pod)
	}
	all := list("d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7")
	m.p.Set(all...)
	m.endProvider()
	m.serve()
	pod := podOf("all", int64(len(all)))
	require.NoError(rt, m.r.admit(pod), "nothing is lost")
	m.endProvider()
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

func (m *model) devices() (out []devices.Device) {
	for i := range rapid.IntRange(0, 8).Draw(m.T, "number") {
		out = append(out, devices.Device{
			ID: fmt.Sprintf("d%d", i), Unhealthy: rapid.IntRange(0, 4).Draw(m.T, "health") == 0,
			Nodes: rapid.SampledFrom([]numa.Nodes{0, numa.Of(0), numa.Of(1), numa.Of(0, 1)}).Draw(m.T, "nodes"),
		})
	}
	return out
}

func (m *model) serve() { m.stop = m.r.serve(m.p) }

func (m *model) endProvider() {
	if m.stop != nil {
		_ = m.stop()
	}
	m.stop = nil
}

// restart is one of the agent.
func (m *model) restart(*rapid.T) {
	m.endProvider()
	m.r.restart()
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		tr := m.pods[name]
		if err := m.r.admit(tr.pod); err != nil {
			require.Nil(m.T, tr.ready, "%v", err)
			m.r.end(tr.pod)
			delete(m.pods, name)
		}
	}
	m.serve()
}

func (m *model) admit(t *rapid.T) {
	m.next++
	var options []testpod.Option
	for i := range rapid.IntRange(1, 4).Draw(t, "containers") {
		c := wants(fmt.Sprintf("c%d", i), ports(rapid.Int64Range(0, 4).Draw(t, "count")))
		options = append(options, rapid.SampledFrom([]testpod.Option{testpod.Init(c), testpod.Sidecar(c), testpod.Container(c)}).Draw(t, "kind"))
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
	m.pods[pod.Name] = &tracked{pod: pod}
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
	err := m.r.prepare(tr.pod, running...)
	if err == nil {
		tr.ready = m.r.ids(tr.pod)
	}
	if errors.As(err, new(*runtime.TerminalError)) {
		require.Nil(t, tr.ready, "%v", err)
		m.r.end(tr.pod)
		delete(m.pods, tr.pod.Name)
	}
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
				q := c.Resources.Limits[port]
				require.Len(t, has[c.Name], int(q.Value()))
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
