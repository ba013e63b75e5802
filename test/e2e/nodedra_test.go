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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
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
	// admin has the names of claims that were prepared with admin access, and their devices.
	admin map[string][]string
}

func newGPUs(t *testing.T, s *nodeSuite) *gpus {
	g := &gpus{cdi: filepath.Join(s.Dir, "cdi"), prepared: map[types.UID]string{}, admin: map[string][]string{},
		health: kubeletplugin.HealthStatusHealthy}
	require.NoError(t, os.MkdirAll(g.cdi, 0o755))
	return g
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
func (g *gpus) PrepareResourceClaims(_ context.Context,
	claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		var devices []any
		g.mu.Lock()
		delete(g.admin, claim.Name) // of a call before
		g.mu.Unlock()
		for _, r := range claim.Status.Allocation.Devices.Results {
			name := string(claim.UID) + "-" + r.Device
			devices = append(devices, map[string]any{"name": name, "containerEdits": map[string]any{"env": []string{
				"GPU_" + strings.ToUpper(strings.ReplaceAll(r.Request, "-", "_")) + "=" + r.Device,
			}}})
			result.Devices = append(result.Devices, kubeletplugin.Device{
				Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device,
				CDIDeviceIDs: []string{"example.com/gpu=" + name},
				Metadata: &kubeletplugin.DeviceMetadata{Attributes: map[string]resourceapi.DeviceAttribute{
					"model": {StringValue: new("model of " + r.Device)}}},
			})
			if r.AdminAccess != nil && *r.AdminAccess {
				g.mu.Lock()
				g.admin[claim.Name] = append(g.admin[claim.Name], r.Device)
				g.mu.Unlock()
			}
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

func (g *gpus) UnprepareResourceClaims(_ context.Context,
	claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
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
		report := kubeletplugin.DeviceHealthReport{Devices: []kubeletplugin.DeviceHealth{{PoolName: NodeName,
			DeviceName: "gpu-0", Health: g.health, LastUpdated: time.Now()}}}
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
func (g *gpus) start(t *testing.T, s *nodeSuite, options ...kubeletplugin.Option) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	data, registry := filepath.Join(s.agent.Root, "plugins", gpuDriver), filepath.Join(s.agent.Root, "plugins_registry")
	require.NoError(t, os.MkdirAll(data, 0o750))
	require.NoError(t, os.MkdirAll(registry, 0o750))
	helper, err := kubeletplugin.Start(ctx, g, append(options, kubeletplugin.DriverName(gpuDriver),
		kubeletplugin.NodeName(NodeName), kubeletplugin.KubeClient(s.plane.Client),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.RegistrarDirectoryPath(registry))...)
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
	Eventually(t, eventually, "slices", func() error {
		if s.slices(t) == 0 {
			return errors.New("there are none")
		}
		return nil
	})
	return stop
}

// slices returns the number of slices of the driver.
func (s *nodeSuite) slices(t *testing.T) int {
	list, err := s.plane.Client.ResourceV1().ResourceSlices().List(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.driver=" + gpuDriver})
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

// Pods with resource claims of a driver of Kubernetes' library: shared, of a template with requests, for an extended
// resource; the agent is killed between the preparation of a claim and the start of its pod, and while pods run; claims
// are unprepared before the objects of their pods go; slices are removed when the driver is gone. The node reads claims
// as the Node authorizer permits.
func TestNodeDynamicResources(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	g := newGPUs(t, s)
	s.start(t)
	stop := g.start(t, s)
	ns := s.plane.Namespace(t, "dra")
	s.plane.Apply(t, gpuClass+"---"+fmt.Sprintf(gpuClaims, ns))

	shared := v1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("shared")}
	two := v1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: new("two")}
	extended := MakePod("extended", Main(Sh("a", Forever)))
	extended.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	s.create(t, ns, withGPU("one", shared, v1.ResourceClaim{Name: "gpu"}),
		withGPU("other", shared, v1.ResourceClaim{Name: "gpu"}),
		withGPU("both", two, v1.ResourceClaim{Name: "gpu"}),
		withGPU("second", two, v1.ResourceClaim{Name: "gpu", Request: "second"}), extended)
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
		object, err := s.plane.Client.ResourceV1().ResourceClaims(ns).Get(context.Background(), claim.Name,
			metav1.GetOptions{})
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

// adminClaim is a claim for all devices of the node, also those that are in use (KEP-5018).
const adminClaim = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: admin, namespace: %[1]s}
spec: {devices: {requests: [{name: all, exactly: {deviceClassName: gpu, allocationMode: All, adminAccess: true}}]}}
`

// A pod whose claim has admin access gets a device that another pod holds. Both run, the driver is shown the access,
// and the end of one leaves the claim of the other prepared.
func TestNodeAdminAccess(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	g := newGPUs(t, s)
	s.start(t)
	g.start(t, s)
	ns := s.plane.Namespace(t, "admin")
	s.plane.Kubectl(t, "label", "namespace", ns, resourceapi.DRAAdminNamespaceLabelKey+"=true")
	s.plane.Apply(t, gpuClass+"---"+fmt.Sprintf(gpuClaims, ns)+"---"+fmt.Sprintf(adminClaim, ns))

	s.create(t, ns, withGPU("user", v1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("shared")},
		v1.ResourceClaim{Name: "gpu"}))
	s.await(t, ns, "user", Running)
	claim, err := s.plane.Client.ResourceV1().ResourceClaims(ns).Get(t.Context(), "shared", metav1.GetOptions{})
	require.NoError(t, err)
	held := claim.Status.Allocation.Devices.Results[0].Device

	s.create(t, ns, withGPU("admin", v1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("admin")},
		v1.ResourceClaim{Name: "gpu"}))
	s.await(t, ns, "admin", Running)
	assert.Equal(t, "GPU_ALL", s.variables(t, "admin"))
	g.mu.Lock()
	assert.Len(t, g.admin["admin"], 8)
	assert.Contains(t, g.admin["admin"], held)
	assert.NotContains(t, g.admin, "shared")
	g.mu.Unlock()

	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "admin")
	s.awaitGone(t, ns, "admin")
	assert.Equal(t, 1, g.count("unprepare admin"))
	assert.Zero(t, g.count("unprepare shared"))
	assert.Zero(t, Status(s.await(t, ns, "user", Running), "a").RestartCount)
	assert.Equal(t, "GPU_ONE", s.variables(t, "user"))
}

// A container reads the attributes of its devices in a file that the library of the driver mounts (KEP-5304), by CDI;
// the files of a pod are removed when its claim is unprepared.
func TestNodeDeviceMetadata(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	g := newGPUs(t, s)
	s.start(t)
	g.start(t, s, kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion}),
		kubeletplugin.CDIDirectory(g.cdi))
	ns := s.plane.Namespace(t, "metadata")
	s.plane.Apply(t, gpuClass+"---"+fmt.Sprintf(gpuClaims, ns))
	s.create(t, ns, withGPU("direct", v1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("shared")},
		v1.ResourceClaim{Name: "gpu"}),
		withGPU("template", v1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: new("two")},
			v1.ResourceClaim{Name: "gpu", Request: "second"}))
	for pod, path := range map[string]string{
		"direct":   metadata.ResourceClaimFilePath(gpuDriver, "shared", "one"),
		"template": metadata.ResourceClaimTemplateFilePath(gpuDriver, "gpu", "second"),
	} {
		s.await(t, ns, pod, Running)
		var found metadatav1beta1.DeviceMetadata
		require.NoError(t, json.Unmarshal([]byte(s.Exec(t, pod, "a", "cat", path)), &found), pod)
		require.Len(t, found.Requests, 1, pod)
		require.Len(t, found.Requests[0].Devices, 1, pod)
		device := found.Requests[0].Devices[0]
		assert.Equal(t, filepath.Base(filepath.Dir(path)), found.Requests[0].Name)
		assert.Equal(t, gpuDriver, device.Driver)
		assert.Equal(t, "model of "+device.Name, *device.Attributes["model"].StringValue)
	}
	files := func() []string {
		list, err := filepath.Glob(filepath.Join(g.cdi, "*_metadata_*"))
		require.NoError(t, err)
		return list
	}
	assert.Len(t, files(), 3)
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "direct", "template")
	s.awaitGone(t, ns, "direct", "template")
	assert.Empty(t, files())
	assert.NoError(t, g.nothing())
}
