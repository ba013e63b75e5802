package plugin_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drahealthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapbv1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbv1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/dra"
	"github.com/kubeletkit/kubeletkit/node/dra/plugin"
	"github.com/kubeletkit/kubeletkit/node/internal/goroutines"
	"github.com/kubeletkit/kubeletkit/node/plugins"
)

// gpu is a plugin with one device.
type gpu struct {
	drapbv1.UnimplementedDRAPluginServer
	drahealthv1alpha1.UnimplementedDRAResourceHealthServer
	health chan *drahealthv1alpha1.DeviceHealth
}

func (*gpu) NodePrepareResources(_ context.Context,
	r *drapbv1.NodePrepareResourcesRequest) (*drapbv1.NodePrepareResourcesResponse, error) {
	out := &drapbv1.NodePrepareResourcesResponse{Claims: map[string]*drapbv1.NodePrepareResourceResponse{}}
	for _, c := range r.Claims {
		out.Claims[c.Uid] = &drapbv1.NodePrepareResourceResponse{Devices: []*drapbv1.Device{{
			PoolName: "node", DeviceName: "gpu-0", RequestNames: []string{"gpu"},
			CdiDeviceIds: []string{"example.com/gpu=" + c.Namespace + "-" + c.Name}, ShareId: new("share"),
		}}}
		if c.Name == "broken" {
			out.Claims[c.Uid].Error = "it is broken"
		}
	}
	return out, nil
}

func (*gpu) NodeUnprepareResources(_ context.Context,
	r *drapbv1.NodeUnprepareResourcesRequest) (*drapbv1.NodeUnprepareResourcesResponse, error) {
	out := &drapbv1.NodeUnprepareResourcesResponse{Claims: map[string]*drapbv1.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		out.Claims[c.Uid] = nil
	}
	return out, nil
}

func (g *gpu) NodeWatchResources(_ *drahealthv1alpha1.NodeWatchResourcesRequest,
	stream grpc.ServerStreamingServer[drahealthv1alpha1.NodeWatchResourcesResponse]) error {
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case h := <-g.health:
			if h == nil {
				return nil
			}
			if err := stream.Send(&drahealthv1alpha1.NodeWatchResourcesResponse{
				Devices: []*drahealthv1alpha1.DeviceHealth{h}}); err != nil {
				return err
			}
		}
	}
}

// serve serves the services of a plugin at a socket.
func serve(t *testing.T, socket string, register func(*grpc.Server)) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := grpc.NewServer()
	register(server)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	stop = sync.OnceFunc(func() { server.Stop(); <-ended })
	t.Cleanup(stop)
	return stop
}

// api has claims for devices of gpu.example.com, for all pods.
type api struct{}

func (api) Claim(_ context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		UID: types.UID(name)}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: "gpu.example.com"}}}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{UID: "pod"}}
	return c, nil
}

func podWith(claim string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "pod"}}
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c", ResourceClaimName: &claim}}
	pod.Spec.Containers = []v1.Container{{Name: "main",
		Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "c"}}}}}
	return pod
}

// start runs drivers with a manager until the function is called or the test ends.
func start(t *testing.T, node lifecycle.Node) (*dra.Manager, *plugin.Drivers, func()) {
	m, err := dra.New(t.TempDir(), api{}, dra.Options{})
	require.NoError(t, err)
	require.NoError(t, m.Join(node))
	d, err := plugin.New(m)
	require.NoError(t, err)
	require.NoError(t, d.Join(node))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	stopped := sync.OnceFunc(func() {
		stop()
		assert.NoError(t, <-ended)
		assert.ErrorContains(t, d.Register(context.Background(),
			plugins.Plugin{Name: "late", Versions: []string{"v1.DRAPlugin"}}), "the agent stops")
	})
	t.Cleanup(stopped)
	return m, d, stopped
}

func socketIn(t *testing.T) string {
	dir, err := os.MkdirTemp("", "dra") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "dra.sock")
}

func TestVersions(t *testing.T) {
	for version, register := range map[string]func(*grpc.Server){
		drapbv1.DRAPluginService: func(s *grpc.Server) { drapbv1.RegisterDRAPluginServer(s, &gpu{}) },
		drapbv1beta1.DRAPluginService: func(s *grpc.Server) {
			drapbv1beta1.RegisterDRAPluginServer(s, drapbv1beta1.V1ServerWrapper{DRAPluginServer: &gpu{}})
		},
	} {
		t.Run(version, func(t *testing.T) {
			socket := socketIn(t)
			stop := serve(t, socket, register)
			node := nodefake.NewNode()
			called := func(code string, methods ...string) {
				t.Helper()
				var got, want []dra.Call
				for _, measured := range node.Measurements() {
					if call, ok := measured.(dra.Call); ok {
						call.Took = 0
						got = append(got, call)
					}
				}
				for _, method := range methods {
					want = append(want, dra.Call{Driver: "gpu.example.com", Method: "/k8s.io.kubelet.pkg.apis.dra." +
						version + "/" + method, Code: code})
				}
				assert.Equal(t, want, got)
				node.Reset()
			}
			m, d, _ := start(t, node)
			p := plugins.Plugin{Type: plugins.TypeDRA, Name: "gpu.example.com", Endpoint: socket,
				Versions: []string{"v7.DRAPlugin", version}}
			require.NoError(t, d.Validate(p))
			require.NoError(t, d.Register(t.Context(), p))
			assert.ErrorContains(t, d.Register(t.Context(), p), "is already registered")
			pod := podWith("gpu")
			_, err := m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: pod})
			require.NoError(t, err)
			list, err := m.ContainerClaims(pod, &pod.Spec.Containers[0])
			require.NoError(t, err)
			want := dra.Device{Pool: "node", Name: "gpu-0", ShareID: new(types.UID("share")), Requests: []string{"gpu"},
				CDIDevices: []string{"example.com/gpu=default-gpu"}}
			if version == drapbv1beta1.DRAPluginService && list[0].Devices[0].ShareID == nil {
				want.ShareID = nil // it has none
			}
			assert.Equal(t, []dra.ContainerClaim{{Claim: dra.Claim{Namespace: "default", Name: "gpu", UID: "gpu"},
				Devices: []dra.ContainerDevice{{Driver: "gpu.example.com", Device: want}}}}, list)
			require.NoError(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: pod}))
			_, err = m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: podWith("broken")})
			require.ErrorContains(t, err, "NodePrepareResources of driver gpu.example.com failed for ResourceClaim "+
				"broken: it is broken")

			called("OK", "NodePrepareResources", "NodeUnprepareResources", "NodePrepareResources")
			stop()
			assert.ErrorContains(t, m.Ended(t.Context(), lifecycle.EndedRequest{Pod: podWith("broken")}), "Unavailable")
			called("Unavailable", "NodeUnprepareResources")
			serve(t, socket, register)
			require.Eventually(t,
				func() bool { return m.Ended(t.Context(), lifecycle.EndedRequest{Pod: podWith("broken")}) == nil },
				time.Minute, 10*time.Millisecond)
			d.Deregister(p)
			d.Deregister(p)
			_, err = m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: pod})
			assert.ErrorContains(t, err, "DRA driver gpu.example.com is not registered")
		})
	}
}

// refreshes receives the pods whose statuses are generated anew.
type refreshes struct {
	lifecycle.NopNode
	changed chan types.UID
}

func (r refreshes) RefreshStatus(pod types.UID) { r.changed <- pod }

func TestHealthStream(t *testing.T) {
	socket := socketIn(t)
	server := &gpu{health: make(chan *drahealthv1alpha1.DeviceHealth)}
	serve(t, socket, func(s *grpc.Server) {
		drapbv1.RegisterDRAPluginServer(s, server)
		drahealthv1alpha1.RegisterDRAResourceHealthServer(s, server)
	})
	changed := make(chan types.UID, 10)
	m, d, _ := start(t, refreshes{changed: changed})
	require.NoError(t, d.Register(t.Context(), plugins.Plugin{
		Type: plugins.TypeDRA, Name: "gpu.example.com", Endpoint: socket, Versions: []string{drapbv1.DRAPluginService,
			drahealthv1alpha1.DRAResourceHealthService},
	}))
	pod := podWith("gpu")
	_, err := m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: pod})
	require.NoError(t, err)
	id := &drahealthv1alpha1.DeviceIdentifier{PoolName: "node", DeviceName: "gpu-0"}
	server.health <- &drahealthv1alpha1.DeviceHealth{Device: id, Health: drahealthv1alpha1.HealthStatus_UNHEALTHY,
		Message: "hot", HealthCheckTimeoutSeconds: -1}
	assert.Equal(t, types.UID("pod"), <-changed)
	assert.Equal(t, []v1.ResourceStatus{{Name: "claim:c", Resources: []v1.ResourceHealth{
		{ResourceID: "example.com/gpu=default-gpu", Health: v1.ResourceHealthStatusUnhealthy, Message: new("hot")},
	}}}, m.AllocatedResources(pod, &pod.Spec.Containers[0]))
	server.health <- nil // the stream ends
	assert.Equal(t, types.UID("pod"), <-changed)
	assert.Equal(t, v1.ResourceHealthStatusUnknown,
		m.AllocatedResources(pod, &pod.Spec.Containers[0])[0].Resources[0].Health)
}

// steady is a plugin with the service of version v1, which reports one health.
type steady struct {
	drahealthv1.UnimplementedDRAResourceHealthServer
}

func (steady) NodeWatchResources(_ *drahealthv1.NodeWatchResourcesRequest,
	stream grpc.ServerStreamingServer[drahealthv1.NodeWatchResourcesResponse]) error {
	id := &drahealthv1.DeviceIdentifier{PoolName: "node", DeviceName: "gpu-0"}
	err := stream.Send(&drahealthv1.NodeWatchResourcesResponse{Devices: []*drahealthv1.DeviceHealth{
		{Device: id, Health: drahealthv1.HealthStatus_HEALTHY, Message: "cool", HealthCheckTimeoutSeconds: 3600},
	}})
	<-stream.Context().Done()
	return err
}

// Of a plugin with both versions of the service of health, v1 is used. What was reported holds when the agent stops,
// for the next one.
func TestHealthStreamOfV1(t *testing.T) {
	socket := socketIn(t)
	serve(t, socket, func(s *grpc.Server) {
		drapbv1.RegisterDRAPluginServer(s, &gpu{})
		drahealthv1.RegisterDRAResourceHealthServer(s, steady{})
	})
	m, d, stop := start(t, lifecycle.NopNode{})
	require.NoError(t, d.Register(t.Context(), plugins.Plugin{
		Type: plugins.TypeDRA, Name: "gpu.example.com", Endpoint: socket,
		Versions: []string{drahealthv1alpha1.DRAResourceHealthService, drapbv1.DRAPluginService,
			drahealthv1.DRAResourceHealthService},
	}))
	pod := podWith("gpu")
	_, err := m.Prepare(t.Context(), lifecycle.PrepareRequest{Pod: pod})
	require.NoError(t, err)
	want := []v1.ResourceStatus{{Name: "claim:c", Resources: []v1.ResourceHealth{
		{ResourceID: "example.com/gpu=default-gpu", Health: v1.ResourceHealthStatusHealthy, Message: new("cool")},
	}}}
	assert.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, want, m.AllocatedResources(pod, &pod.Spec.Containers[0]))
	}, time.Minute, time.Millisecond)
	stop()
	assert.Equal(t, want, m.AllocatedResources(pod, &pod.Spec.Containers[0]))
}

// silent is a plugin that names the service of health, and does not have it.
type silent struct {
	drahealthv1.UnimplementedDRAResourceHealthServer
	asked chan struct{}
}

func (s silent) NodeWatchResources(req *drahealthv1.NodeWatchResourcesRequest,
	stream grpc.ServerStreamingServer[drahealthv1.NodeWatchResourcesResponse]) error {
	s.asked <- struct{}{}
	return s.UnimplementedDRAResourceHealthServer.NodeWatchResources(req, stream)
}

// A plugin that has no health to report is asked once.
func TestHealthThatIsNotImplemented(t *testing.T) {
	socket := socketIn(t)
	server := silent{asked: make(chan struct{})}
	serve(t, socket, func(s *grpc.Server) {
		drapbv1.RegisterDRAPluginServer(s, &gpu{})
		drahealthv1.RegisterDRAResourceHealthServer(s, server)
	})
	_, d, _ := start(t, lifecycle.NopNode{})
	require.NoError(t, d.Register(t.Context(), plugins.Plugin{
		Type: plugins.TypeDRA, Name: "gpu.example.com", Endpoint: socket,
		Versions: []string{drapbv1.DRAPluginService, drahealthv1.DRAResourceHealthService},
	}))
	<-server.asked
	assert.Eventually(t, func() bool { return len(goroutines.In("followHealth")) == 0 }, time.Minute,
		time.Millisecond)
}

// Without a plugin there is no goroutine, and one that is gone has left none.
func TestGoroutines(t *testing.T) {
	socket := socketIn(t)
	server := &gpu{health: make(chan *drahealthv1alpha1.DeviceHealth)}
	serve(t, socket, func(s *grpc.Server) {
		drapbv1.RegisterDRAPluginServer(s, server)
		drahealthv1alpha1.RegisterDRAResourceHealthServer(s, server)
	})
	_, d, _ := start(t, lifecycle.NopNode{})
	assert.Eventually(t, func() bool { return len(goroutines.In("node/dra/plugin")) == 0 }, time.Minute,
		time.Millisecond, "connections of other tests end")
	p := plugins.Plugin{Type: plugins.TypeDRA, Name: "gpu.example.com", Endpoint: socket,
		Versions: []string{drapbv1.DRAPluginService, drahealthv1alpha1.DRAResourceHealthService}}
	require.NoError(t, d.Register(t.Context(), p))
	assert.Eventually(t, func() bool { return len(goroutines.In("node/dra/plugin")) == 2 },
		time.Minute, time.Millisecond)
	d.Deregister(p)
	assert.Eventually(t, func() bool { return len(goroutines.In("node/dra/plugin")) == 0 },
		time.Minute, time.Millisecond)
}

func TestPluginThatIsRefused(t *testing.T) {
	_, d, _ := start(t, lifecycle.NopNode{})
	assert.EqualError(t, d.Validate(plugins.Plugin{}), "the DRA driver has no name")
	p := plugins.Plugin{Name: "gpu.example.com", Versions: []string{"v1alpha4.DRAPlugin"}}
	assert.EqualError(t, d.Validate(p),
		`none of the gRPC services of DRA driver gpu.example.com, ["v1alpha4.DRAPlugin"], is supported: "v1.DRAPlugin", "v1beta1.DRAPlugin"`)
	assert.Error(t, d.Register(t.Context(), p))
	_, err := plugin.New(nil)
	assert.Error(t, err)
}
