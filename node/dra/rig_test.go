package dra

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// apiServer has claims.
type apiServer struct {
	mu     sync.Mutex
	claims map[string]*resourceapi.ResourceClaim
	reads  int
}

func (a *apiServer) Claim(_ context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reads++
	c := a.claims[name]
	if c == nil {
		return nil, fmt.Errorf("resourceclaims.resource.k8s.io %q not found", name)
	}
	return c, nil
}

// set has a claim with a device of each driver, reserved for pods.
func (a *apiServer) set(name string, drivers []string, pods ...*v1.Pod) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, d := range drivers {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: "req", Driver: d, Pool: "pool", Device: "dev-" + name})
	}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods",
			Name: p.Name, UID: p.UID})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.claims == nil {
		a.claims = map[string]*resourceapi.ResourceClaim{}
	}
	a.claims[name] = c
	return c
}

// driverOf is a driver in memory.
type driverOf struct {
	name string
	// call is called at the begin and at the end of each call, if it is not nil.
	call func(what string, done bool) error

	mu       sync.Mutex
	prepared map[types.UID]bool
	busy     map[types.UID]bool
	overlaps int
	calls    []string
}

func newDriverOf(name string) *driverOf {
	return &driverOf{name: name, prepared: map[types.UID]bool{}, busy: map[types.UID]bool{}}
}

func (d *driverOf) do(what string, claims []Claim, prepared bool) error {
	d.mu.Lock()
	for _, c := range claims {
		d.calls = append(d.calls, what+" "+c.Name)
		if d.busy[c.UID] {
			d.overlaps++
		}
		d.busy[c.UID] = true
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, c := range claims {
			delete(d.busy, c.UID)
		}
	}()
	if d.call != nil {
		if err := d.call(what, false); err != nil {
			return err
		}
	}
	d.mu.Lock()
	for _, c := range claims {
		if prepared {
			d.prepared[c.UID] = true
		} else {
			delete(d.prepared, c.UID)
		}
	}
	d.mu.Unlock()
	if d.call != nil {
		return d.call(what, true)
	}
	return nil
}

func (d *driverOf) Prepare(_ context.Context, claims []Claim) (map[types.UID]Prepared, error) {
	if err := d.do("prepare", claims, true); err != nil {
		return nil, err
	}
	out := map[types.UID]Prepared{}
	for _, c := range claims {
		out[c.UID] = Prepared{Devices: []Device{{Pool: "pool", Name: "dev-" + c.Name, Requests: []string{"req"},
			CDIDevices: []string{d.name + "=" + c.Name}}}}
	}
	return out, nil
}

func (d *driverOf) Unprepare(_ context.Context, claims []Claim) (map[types.UID]error, error) {
	if err := d.do("unprepare", claims, false); err != nil {
		return nil, err
	}
	out := map[types.UID]error{}
	for _, c := range claims {
		out[c.UID] = nil
	}
	return out, nil
}

// took returns the calls since the last one.
func (d *driverOf) took() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

func (d *driverOf) has(claim string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.prepared[types.UID("uid-"+claim)]
}

// podWith returns a pod whose container uses all of the claims.
func podWith(name string, claims ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	pod.Spec.Containers = []v1.Container{{Name: "main"}}
	for _, c := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: c, ResourceClaimName: &c})
		pod.Spec.Containers[0].Resources.Claims = append(pod.Spec.Containers[0].Resources.Claims,
			v1.ResourceClaim{Name: c})
	}
	return pod
}

func sandboxOf(ready bool) *runtime.PodStatus {
	if !ready {
		return nil
	}
	return &runtime.PodStatus{
		Sandboxes: []runtime.SandboxStatus{{Sandbox: runtime.Sandbox{State: runtime.SandboxReady}}}}
}

// newManager returns a manager that writes without syncing.
func newManager(t require.TestingT, dir string, api *apiServer, opts Options) *Manager {
	m, err := New(dir, api, opts)
	require.NoError(t, err)
	m.health.Write = func(path string, data []byte) error { return os.WriteFile(path, data, 0o600) }
	m.file.Write = func(path string, data []byte) error { return os.WriteFile(path, data, 0o600) }
	return m
}

func prepare(m *Manager, pod *v1.Pod, running bool) error {
	_, err := m.Prepare(context.Background(), lifecycle.PrepareRequest{Pod: pod, Observed: sandboxOf(running)})
	return err
}

func end(m *Manager, pod *v1.Pod) error {
	return m.Ended(context.Background(), lifecycle.EndedRequest{Pod: pod})
}

func cdi(t require.TestingT, m *Manager, pod *v1.Pod) []string {
	edits, err := m.EditContainer(context.Background(), pod, &pod.Spec.Containers[0])
	require.NoError(t, err)
	return edits.CDIDevices
}

// onDisk returns the claims in the state on disk.
func onDisk(t require.TestingT, dir string) map[string]ClaimState {
	data, err := os.ReadFile(filepath.Join(dir, stateName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	list, err := ParseState(data)
	require.NoError(t, err)
	out := map[string]ClaimState{}
	for _, c := range list {
		out[c.Name] = c
	}
	return out
}

// withDriver returns a manager with one driver that is connected.
func withDriver(t *testing.T, opts Options) (*Manager, *apiServer, *driverOf) {
	api := &apiServer{}
	m := newManager(t, t.TempDir(), api, opts)
	d := newDriverOf("gpu.example.com")
	m.Add("gpu.example.com", d).SetConnected(true)
	return m, api, d
}

var errTest = errors.New("it fails")
