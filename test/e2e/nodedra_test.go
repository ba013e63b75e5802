package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

const gpuDriver = "gpu.example.com"

// gpus is a driver whose devices are environment variables.
type gpus struct {
	cdi string
	// called is called after each call has had its effect, if it is not nil.
	called func(what string, claim types.NamespacedName)

	mu       sync.Mutex
	prepared map[types.UID]string
	calls    []string
	health   kubeletplugin.HealthStatus
}

func (g *gpus) done(what string, claim types.NamespacedName) {
	g.mu.Lock()
	g.calls = append(g.calls, what+" "+claim.Name)
	called := g.called
	g.mu.Unlock()
	if called != nil {
		called(what, claim)
	}
}

func (g *gpus) setCalled(f func(what string, claim types.NamespacedName)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.called = f
}

// count returns how often a call was made for a claim.
func (g *gpus) count(call string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.calls {
		if c == call {
			n++
		}
	}
	return n
}

// nothing is an error while a claim is prepared.
func (g *gpus) nothing() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.prepared) > 0 {
		return fmt.Errorf("prepared: %v", g.prepared)
	}
	return nil
}

func (g *gpus) spec(uid types.UID) string { return filepath.Join(g.cdi, "gpu-"+string(uid)+".json") }

// PrepareResourceClaims writes a CDI file for each claim, with a device for each of its results.
func (g *gpus) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		var devices []any
		for _, r := range claim.Status.Allocation.Devices.Results {
			name := string(claim.UID) + "-" + r.Device
			devices = append(devices, map[string]any{"name": name, "containerEdits": map[string]any{"env": []string{
				"GPU_" + strings.ToUpper(strings.ReplaceAll(r.Request, "-", "_")) + "=" + r.Device,
			}}})
			result.Devices = append(result.Devices, kubeletplugin.Device{
				Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, CDIDeviceIDs: []string{"example.com/gpu=" + name},
			})
		}
		data, err := json.Marshal(map[string]any{"cdiVersion": "0.5.0", "kind": "example.com/gpu", "devices": devices})
		if err == nil {
			err = os.WriteFile(g.spec(claim.UID), data, 0o644)
		}
		result.Err = err
		out[claim.UID] = result
		g.mu.Lock()
		g.prepared[claim.UID] = claim.Name
		g.mu.Unlock()
		g.done("prepare", types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
	}
	return out, nil
}

func (g *gpus) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, claim := range claims {
		if err := os.Remove(g.spec(claim.UID)); err != nil && !errors.Is(err, os.ErrNotExist) {
			out[claim.UID] = err
			continue
		}
		out[claim.UID] = nil
		g.mu.Lock()
		delete(g.prepared, claim.UID)
		g.mu.Unlock()
		g.done("unprepare", claim.NamespacedName)
	}
	return out, nil
}

func (g *gpus) HandleError(context.Context, error, string) {}

// WatchHealthStatus reports the health of one device each second.
func (g *gpus) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	for {
		g.mu.Lock()
		report := kubeletplugin.DeviceHealthReport{Devices: []kubeletplugin.DeviceHealth{{PoolName: NodeName, DeviceName: "gpu-0", Health: g.health, LastUpdated: time.Now()}}}
		g.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case reports <- report:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// startDriver runs the driver until the function is called or the test ends.
func (g *gpus) start(t *testing.T, s *nodeSuite) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	data, registry := filepath.Join(s.agent.Root, "plugins", gpuDriver), filepath.Join(s.agent.Root, "plugins_registry")
	require.NoError(t, os.MkdirAll(data, 0o750))
	require.NoError(t, os.MkdirAll(registry, 0o750))
	helper, err := kubeletplugin.Start(ctx, g, kubeletplugin.DriverName(gpuDriver), kubeletplugin.NodeName(NodeName), kubeletplugin.KubeClient(s.plane.Client),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.RegistrarDirectoryPath(registry))
	require.NoError(t, err)
	var devices []resourceapi.Device
	for i := range 8 {
		devices = append(devices, resourceapi.Device{Name: fmt.Sprintf("gpu-%d", i)})
	}
	require.NoError(t, helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		NodeName: {Slices: []resourceslice.Slice{{Devices: devices}}},
	}}))
	stop = sync.OnceFunc(func() { cancel(); helper.Stop() })
	t.Cleanup(stop)
	return stop
}

// slices returns the number of slices of the driver.
func (s *nodeSuite) slices(t *testing.T) int {
	list, err := s.plane.Client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.driver=" + gpuDriver})
	require.NoError(t, err)
	return len(list.Items)
}

const gpuClass = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec:
  extendedResourceName: example.com/gpu
  selectors: [{cel: {expression: device.driver == "gpu.example.com"}}]
`

// gpuClaims are a claim, and a template of claims with two requests.
const gpuClaims = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared, namespace: %[1]s}
spec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpu}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two, namespace: %[1]s}
spec: {spec: {devices: {requests: [{name: first, exactly: {deviceClassName: gpu}}, {name: second, exactly: {deviceClassName: gpu}}]}}}
`

// withGPU is a pod whose container uses a claim.
func withGPU(name string, claim v1.PodResourceClaim, uses ...v1.ResourceClaim) *v1.Pod {
	c := Sh("a", Forever)
	c.Resources.Claims = uses
	pod := MakePod(name, Main(c))
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{claim}
	return pod
}

// variables returns the environment variables of devices of the container of a pod.
func (s *nodeSuite) variables(t *testing.T, pod string) string {
	t.Helper()
	var list []string
	for _, line := range strings.Split(s.Exec(t, pod, "a", "env"), "\n") {
		if strings.HasPrefix(line, "GPU") {
			name, _, _ := strings.Cut(strings.TrimSpace(line), "=")
			list = append(list, name)
		}
	}
	return strings.Join(list, " ")
}

// Pods with resource claims of a driver of Kubernetes' library: shared, of a template with requests, for an extended resource; the agent is killed
// between the preparation of a claim and the start of its pod, and while pods run; claims are unprepared before the objects of their pods go;
// slices are removed when the driver is gone. The node reads claims as the Node authorizer permits.
func TestNodeDynamicResources(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	cdi := filepath.Join(s.Dir, "cdi")
	require.NoError(t, os.MkdirAll(cdi, 0o755))
	g := &gpus{cdi: cdi, prepared: map[types.UID]string{}, health: kubeletplugin.HealthStatusHealthy}
	s.start(t)
	stop := g.start(t, s)
	Eventually(t, eventually, "slices", func() error {
		if s.slices(t) == 0 {
			return errors.New("there are none")
		}
		return nil
	})
	ns := s.plane.Namespace(t, "dra")
	s.plane.Apply(t, gpuClass+"---"+fmt.Sprintf(gpuClaims, ns))

	shared := v1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("shared")}
	two := v1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: new("two")}
	extended := MakePod("extended", Main(Sh("a", Forever)))
	extended.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	s.create(t, ns, withGPU("one", shared, v1.ResourceClaim{Name: "gpu"}), withGPU("other", shared, v1.ResourceClaim{Name: "gpu"}),
		withGPU("both", two, v1.ResourceClaim{Name: "gpu"}), withGPU("second", two, v1.ResourceClaim{Name: "gpu", Request: "second"}), extended)
	for name, want := range map[string]string{
		"one": "GPU_ONE", "other": "GPU_ONE", "both": "GPU_FIRST GPU_SECOND", "second": "GPU_SECOND", "extended": "GPU_CONTAINER_0_REQUEST_0",
	} {
		s.await(t, ns, name, Running)
		assert.Equal(t, want, s.variables(t, name), name)
	}
	assert.Equal(t, 1, g.count("prepare shared"))

	healthy := func(want v1.ResourceHealthStatus) Condition {
		return func(pod *v1.Pod) error {
			for _, r := range Status(pod, "a").AllocatedResourcesStatus {
				if r.Name == "claim:gpu" && len(r.Resources) == 1 && r.Resources[0].Health == want {
					return nil
				}
			}
			return fmt.Errorf("%+v", Status(pod, "a").AllocatedResourcesStatus)
		}
	}
	claim, err := s.plane.Client.ResourceV1().ResourceClaims(ns).Get(t.Context(), "shared", metav1.GetOptions{})
	require.NoError(t, err)
	if claim.Status.Allocation.Devices.Results[0].Device == "gpu-0" { // as the scheduler does today
		s.await(t, ns, "one", healthy(v1.ResourceHealthStatusHealthy))
		g.mu.Lock()
		g.health = kubeletplugin.HealthStatusUnhealthy
		g.mu.Unlock()
		s.await(t, ns, "one", healthy(v1.ResourceHealthStatusUnhealthy))
	}

	// The agent is killed when the driver has prepared the claim, before it knows.
	killed := make(chan struct{})
	var once sync.Once
	prepared := make(chan string, 1)
	g.setCalled(func(what string, claim types.NamespacedName) {
		once.Do(func() {
			prepared <- claim.Name
			<-killed
		})
	})
	s.create(t, ns, withGPU("late", two, v1.ResourceClaim{Name: "gpu"}))
	name := <-prepared
	s.agent.Kill(t)
	close(killed)
	g.setCalled(nil)
	s.start(t)
	s.await(t, ns, "late", Running)
	assert.Equal(t, 2, g.count("prepare "+name))
	assert.Equal(t, "GPU_FIRST GPU_SECOND", s.variables(t, "late"))
	assert.Equal(t, 1, g.count("prepare shared"), "pods that run are not prepared again")
	for _, name := range []string{"one", "other", "both", "second", "extended"} {
		assert.Zero(t, Status(s.await(t, ns, name, Running), "a").RestartCount, name)
	}

	// A container that is started again has its devices.
	before := s.Newest(t, "one", "a").Id
	s.KillProcess(t, "one", "a")
	Eventually(t, eventually, "restart", func() error {
		if c := s.Newest(t, "one", "a"); c.Id == before || c.State.String() != "CONTAINER_RUNNING" {
			return errors.New("not yet")
		}
		return nil
	})
	assert.Equal(t, "GPU_ONE", s.variables(t, "one"))

	// Claims are unprepared before the object of their pod goes.
	g.setCalled(func(what string, claim types.NamespacedName) {
		if what != "unprepare" {
			return
		}
		object, err := s.plane.Client.ResourceV1().ResourceClaims(ns).Get(context.Background(), claim.Name, metav1.GetOptions{})
		if !assert.NoError(t, err) {
			return
		}
		for _, consumer := range object.Status.ReservedFor {
			_, err := s.plane.Client.CoreV1().Pods(ns).Get(context.Background(), consumer.Name, metav1.GetOptions{})
			assert.NoError(t, err, "claim %s", claim.Name)
		}
	})
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "one")
	s.awaitGone(t, ns, "one")
	assert.Zero(t, g.count("unprepare shared"))
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "other", "both", "second", "extended", "late")
	s.awaitGone(t, ns, "other", "both", "second", "extended", "late")
	assert.NoError(t, g.nothing())
	assert.Equal(t, 1, g.count("unprepare shared"))

	stop()
	Eventually(t, eventually, "slices of a driver that is gone", func() error {
		if n := s.slices(t); n > 0 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}
