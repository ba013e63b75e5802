package devices_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/devices/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const port = "example.com/port"

// wants returns a container that requests devices.
func wants(name string, amounts map[v1.ResourceName]int64) v1.Container {
	c := v1.Container{Name: name,
		Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}
	for r, n := range amounts {
		c.Resources.Limits[r] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return c
}

func ports(n int64) map[v1.ResourceName]int64 { return map[v1.ResourceName]int64{port: n} }

// podOf returns a pod with one container that requests ports.
func podOf(name string, n int64) *v1.Pod {
	return testpod.New(name, testpod.Container(wants("main", ports(n))))
}

func list(ids ...string) (out []devices.Device) {
	for _, id := range ids {
		out = append(out, devices.Device{ID: id})
	}
	return out
}

// on returns devices near to a node.
func on(node int, ids ...string) []devices.Device {
	out := list(ids...)
	for i := range out {
		out[i].Nodes = numa.Of(node)
	}
	return out
}

func sick(ids ...string) []devices.Device {
	out := list(ids...)
	for i := range out {
		out[i].Unhealthy = true
	}
	return out
}

// rig is an agent with a manager of devices.
type rig struct {
	t    testing.TB
	path string
	opts devices.Options
	*devices.Manager

	node   *nodefake.Node
	logged []string
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "device-plugins", devices.CheckpointName)}
	r.node = &nodefake.Node{Log: funcr.New(func(_, args string) { r.logged = append(r.logged, args) }, funcr.Options{})}
	r.restart()
	return r
}

// restart makes a new manager, which has what the checkpoint has.
func (r *rig) restart() {
	if r.Manager != nil {
		_ = r.SaveForTest() // as Run does
	}
	var err error
	r.Manager, err = devices.New(r.path, r.opts)
	require.NoError(r.t, err)
	require.NoError(r.t, r.Join(r.node))
}

// serve serves a provider until the function that it returns is called, which returns the error of Serve. It is for a
// synctest bubble.
func (r *rig) serve(p devices.Provider) (stop func() error) {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, p) }()
	synctest.Wait()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

func (r *rig) admit(pod *v1.Pod) error {
	_, err := r.Admit(lifecycle.AdmitRequest{Pod: pod})
	if err != nil {
		r.Refused(pod)
	}
	return err
}

// prepare calls Prepare; the named containers run.
func (r *rig) prepare(pod *v1.Pod, running ...string) error {
	var observed []runtime.ContainerStatus
	for _, name := range running {
		observed = append(observed, in(name, runtime.ContainerRunning))
	}
	return r.prepareWith(pod, observed...)
}

// in returns a container of the sandbox of the pod.
func in(name string, state runtime.ContainerState) runtime.ContainerStatus {
	return runtime.ContainerStatus{Container: runtime.Container{Name: name, State: state, SandboxID: "s"},
		StartedAt: time.Unix(1, 0)}
}

func (r *rig) prepareWith(pod *v1.Pod, containers ...runtime.ContainerStatus) error {
	observed := &runtime.PodStatus{PodRef: runtime.RefOf(pod), Containers: containers}
	if len(containers) > 0 {
		observed.Sandboxes = []runtime.SandboxStatus{{Sandbox: runtime.Sandbox{ID: "s", State: runtime.SandboxReady}}}
	}
	_, err := r.Prepare(r.t.Context(), lifecycle.PrepareRequest{Pod: pod, Observed: observed})
	return err
}

// start admits and prepares the pod.
func (r *rig) start(pod *v1.Pod) {
	r.t.Helper()
	require.NoError(r.t, r.admit(pod))
	require.NoError(r.t, r.prepare(pod))
}

func (r *rig) end(pod *v1.Pod) {
	require.NoError(r.t, r.Ended(r.t.Context(), lifecycle.EndedRequest{Pod: pod}))
}

// ids returns the devices of each container of the pod.
func (r *rig) ids(pod *v1.Pod) map[string][]string {
	out := map[string][]string{}
	for _, a := range r.Devices(pod.UID) {
		for _, d := range a.Devices {
			out[a.Container] = append(out[a.Container], d.ID)
		}
	}
	return out
}

func (r *rig) edits(pod *v1.Pod, container string) (runtime.ContainerEdits, error) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == container {
			return r.EditContainer(r.t.Context(), pod, &c)
		}
	}
	return runtime.ContainerEdits{}, errors.New("no such container")
}

// counts returns capacity and allocatable of the ports.
func (r *rig) counts() [2]int64 {
	capacity, allocatable, err := r.NodeResources(r.t.Context())
	require.NoError(r.t, err)
	require.ElementsMatch(r.t, slices.Collect(maps.Keys(capacity)), slices.Collect(maps.Keys(allocatable)))
	all, healthy := capacity[port], allocatable[port]
	return [2]int64{all.Value(), healthy.Value()}
}

// bubble runs a test in virtual time, with a provider of ports.
func bubble(t *testing.T, all []devices.Device, test func(t *testing.T, r *rig, p *fake.Provider, stop func() error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := fake.New(port, all...)
		stop := r.serve(p)
		defer func() { _ = stop() }()
		test(t, r, p, stop)
	})
}
