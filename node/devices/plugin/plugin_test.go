package plugin_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	nodefake "github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/devices/plugin"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/plugins"
	"github.com/kubeletkit/kubeletkit/runtime"
)

const gpu = "example.com/gpu"

// node is an agent with a server of plugins.
type node struct {
	t    testing.TB
	dir  string
	opts devices.Options
	node *nodefake.Node
	*devices.Manager
	server *plugin.Server
	stop   func()

	mu     sync.Mutex
	logged []string
}

func newNode(t testing.TB) *node {
	dir, err := os.MkdirTemp("", "plugins") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{t: t, dir: dir}
	n.node = &nodefake.Node{Log: funcr.New(n.log, funcr.Options{})}
	n.opts.CallTimeout = time.Minute
	n.start()
	return n
}

func (n *node) log(_, args string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logged = append(n.logged, args)
}

// start runs the agent until stop.
func (n *node) start() {
	var err error
	n.Manager, err = devices.New(filepath.Join(n.dir, devices.CheckpointName), n.opts)
	require.NoError(n.t, err)
	require.NoError(n.t, n.Join(n.node))
	n.server, err = plugin.New(n.dir, n.Manager)
	require.NoError(n.t, err)
	require.NoError(n.t, n.server.Join(n.node))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	server := n.server
	go func() { done <- server.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(n.t, <-done)
	})
	n.t.Cleanup(n.stop)
	n.eventually("the socket", func() bool {
		_, err := os.Stat(filepath.Join(n.dir, plugin.SocketName))
		return err == nil
	})
}

func (n *node) eventually(what string, done func() bool) {
	n.t.Helper()
	require.Eventually(n.t, done, 30*time.Second, 5*time.Millisecond, what)
}

// counts waits for the numbers of devices.
func (n *node) counts(capacity, allocatable int64) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("%d of %d devices", allocatable, capacity), func() bool {
		all, healthy, err := n.NodeResources(n.t.Context())
		require.NoError(n.t, err)
		c, a := all[gpu], healthy[gpu]
		return c.Value() == capacity && a.Value() == allocatable
	})
}

func podOf(name string, n int64) *v1.Pod { return podWith(name, gpu, n) }

func podWith(name string, of v1.ResourceName, n int64) *v1.Pod {
	return testpod.New(name,
		testpod.Container(v1.Container{Name: "main",
			Resources: v1.ResourceRequirements{Limits: v1.ResourceList{of: *resource.NewQuantity(n,
				resource.DecimalSI)}}}))
}

func (n *node) prepare(pod *v1.Pod) error {
	_, err := n.Prepare(n.t.Context(), lifecycle.PrepareRequest{Pod: pod})
	return err
}

// run admits and prepares the pod, and returns the edits of its container.
func (n *node) run(pod *v1.Pod) (runtime.ContainerEdits, error) { return n.runWith(n.t.Context(), pod) }

func (n *node) runWith(ctx context.Context, pod *v1.Pod) (runtime.ContainerEdits, error) {
	if _, err := n.Admit(lifecycle.AdmitRequest{Pod: pod}); err != nil {
		return runtime.ContainerEdits{}, err
	}
	if _, err := n.Prepare(ctx, lifecycle.PrepareRequest{Pod: pod}); err != nil {
		return runtime.ContainerEdits{}, err
	}
	return n.EditContainer(ctx, pod, &pod.Spec.Containers[0])
}

func TestNew(t *testing.T) {
	_, err := plugin.New("relative", &devices.Manager{})
	require.EqualError(t, err, `device plugins: the directory "relative" is no absolute path`)
	_, err = plugin.New("/x", nil)
	require.EqualError(t, err, "device plugins: the manager is nil")
}

// All calls of the protocol, in their order.
func TestProtocol(t *testing.T) {
	n := newNode(t)
	p := newSample(t, n.dir, gpu)
	p.options = &api.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}
	p.set(
		&api.Device{ID: "a", Health: api.Healthy,
			Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 1}, {ID: -1}, {ID: 64}}}},
		&api.Device{ID: "b", Health: api.Healthy}, &api.Device{ID: "c", Health: api.Healthy},
		&api.Device{ID: "d", Health: "Sick"},
	)
	var calls []string
	p.prefer = func(req *api.ContainerPreferredAllocationRequest) []string {
		calls = append(calls, fmt.Sprint("prefer ", req.AvailableDeviceIDs, req.MustIncludeDeviceIDs,
			req.AllocationSize))
		return []string{"c", "a"}
	}
	p.allocate = func(_ context.Context, ids []string) (*api.ContainerAllocateResponse, error) {
		calls = append(calls, fmt.Sprint("allocate ", ids))
		return &api.ContainerAllocateResponse{
			Envs: map[string]string{"B": "2", "A": "1"}, Annotations: map[string]string{"k": "v"},
			Mounts:     []*api.Mount{{ContainerPath: "/c", HostPath: "/h", ReadOnly: true}},
			Devices:    []*api.DeviceSpec{{ContainerPath: "/dev/c", HostPath: "/dev/h", Permissions: "mrw"}},
			CdiDevices: []*api.CDIDevice{{Name: "example.com/gpu=a"}},
		}, nil
	}
	p.preStart = func(_ context.Context, ids []string) error {
		calls = append(calls, fmt.Sprint("prestart ", ids))
		return nil
	}
	p.start()
	require.NoError(t, p.register())
	n.counts(4, 3)
	pod := podOf("pod", 2)
	edits, err := n.run(pod)
	require.NoError(t, err)
	assert.Equal(t, runtime.ContainerEdits{
		Env: []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}, Annotations: map[string]string{"k": "v"},
		Mounts:     []runtime.BindMount{{ContainerPath: "/c", HostPath: "/h", ReadOnly: true}},
		Devices:    []runtime.Device{{ContainerPath: "/dev/c", HostPath: "/dev/h", Permissions: "mrw"}},
		CDIDevices: []string{"example.com/gpu=a"},
	}, edits)
	assert.Equal(t, []string{"prefer [a b c] [] 2", "allocate [a c]", "prestart [a c]"}, calls)
	assert.Equal(t,
		[]devices.Allocation{{Container: "main", Resource: gpu, Devices: []devices.Device{{ID: "a", Nodes: numa.Of(1)},
			{ID: "c"}}}}, n.Devices(pod.UID))

	p.stop() // it dies
	n.counts(4, 0)
	_, err = n.EditContainer(t.Context(), pod, &pod.Spec.Containers[0])
	require.ErrorContains(t, err, "the provider of example.com/gpu cannot prepare the start",
		"it has to be asked before each start")
	p.start()
	require.NoError(t, p.register())
	n.counts(4, 3)
	_, err = n.EditContainer(t.Context(), pod, &pod.Spec.Containers[0])
	require.NoError(t, err)
	registered := devices.Registered{Resource: "example.com/gpu"}
	measured := n.node.Measurements()
	require.Len(t, measured, 3)
	assert.Equal(t, []runtime.Measurement{registered, registered}, []runtime.Measurement{measured[0], measured[2]})
	assert.Equal(t, v1.ResourceName("example.com/gpu"), measured[1].(devices.Allocated).Resource)
}

// The agent is restarted while a plugin runs: its socket is removed, so that it registers again, and pods keep their
// devices.
func TestRestart(t *testing.T) {
	n := newNode(t)
	p := newSample(t, n.dir, gpu, "a", "b")
	p.allocate = func(_ context.Context, ids []string) (*api.ContainerAllocateResponse, error) {
		return &api.ContainerAllocateResponse{Envs: map[string]string{"GPU": strings.Join(ids, ",")}}, nil
	}
	p.start()
	require.NoError(t, p.register())
	n.counts(2, 2)
	pod := podOf("pod", 1)
	before, err := n.run(pod)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, "DEPRECATION"), nil, 0o600))
	n.stop()
	n.start()
	assert.NoFileExists(t, p.socket)
	assert.FileExists(t, filepath.Join(n.dir, "DEPRECATION"))
	_, err = n.Admit(lifecycle.AdmitRequest{Pod: pod})
	require.NoError(t, err)
	require.ErrorContains(t, n.prepare(pod), "waiting for the provider of example.com/gpu")
	p.stop()
	p.start()
	require.NoError(t, p.register())
	n.counts(2, 2)
	require.NoError(t, n.prepare(pod))
	edits, err := n.EditContainer(t.Context(), pod, &pod.Spec.Containers[0])
	require.NoError(t, err)
	assert.Equal(t, before, edits)
}

func TestRefusedRegistrations(t *testing.T) {
	n := newNode(t)
	for _, tc := range []struct {
		req  *api.RegisterRequest
		want string
	}{
		{&api.RegisterRequest{Version: "v1", Endpoint: "x.sock", ResourceName: gpu}, `the plugin supports the versions ["v1"] of the API of device plugins, and the agent ["v1beta1"]`},
		{&api.RegisterRequest{Version: api.Version, Endpoint: "x.sock", ResourceName: "cpu"}, `"cpu" is no name of an extended resource`},
		{&api.RegisterRequest{Version: api.Version, Endpoint: "../x.sock", ResourceName: gpu}, `the endpoint "../x.sock" is no name of a socket in`},
		{&api.RegisterRequest{}, "the plugin supports the versions"},
	} {
		require.ErrorContains(t, register(t.Context(), n.dir, tc.req), tc.want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.Error(t, n.server.Register(ctx, plugins.Plugin{Name: gpu, Endpoint: filepath.Join(n.dir, "missing.sock")}))
	n.stop()
	p := newSample(t, n.dir, gpu)
	p.start()
	require.ErrorIs(t, n.server.Register(t.Context(), p.plugin()), plugin.ErrNotRunning)
}

// A plugin of the directory of the plugin manager is served as one that has registered by the socket.
func TestHandler(t *testing.T) {
	n := newNode(t)
	p := newSample(t, n.dir, gpu, "a", "b")
	p.start()
	require.NoError(t, n.server.Validate(p.plugin()))
	require.NoError(t, n.server.Register(t.Context(), p.plugin()))
	n.counts(2, 2)
	n.server.Deregister(plugins.Plugin{Name: gpu, Endpoint: "another.sock"})
	n.counts(2, 2)
	n.server.Deregister(p.plugin())
	n.counts(2, 0)
	later := p.plugin()
	later.Versions = []string{"v2"}
	require.ErrorContains(t, n.server.Validate(later), `the plugin supports the versions ["v2"]`)
	require.ErrorContains(t, n.server.Validate(plugins.Plugin{Name: "cpu", Versions: p.plugin().Versions}),
		"no name of an extended resource")
}

// Two plugins of a resource run at once, as while a DaemonSet is updated: the second one is served, and when it ends,
// the first one is served again. One that registers again at the same socket replaces itself.
func TestTwice(t *testing.T) {
	n := newNode(t)
	one, two := newSample(t, n.dir, gpu, "a"), newSample(t, n.dir, gpu, "a", "b")
	two.socket += "2"
	one.start()
	two.start()
	require.NoError(t, one.register())
	n.counts(1, 1)
	require.NoError(t, two.register())
	n.counts(2, 2)
	require.NoError(t, two.register(), "again")
	n.counts(2, 2)
	two.stop()
	n.counts(1, 1)
	two.start()
	require.NoError(t, two.register())
	n.counts(2, 2)
	one.stop()
	require.NoError(t, two.register(), "again")
	n.counts(2, 2)
	n.server.Deregister(one.plugin())
	n.counts(2, 2)
	n.server.Deregister(two.plugin())
	n.counts(2, 0)
}

// Preferences that are nonsense are ignored, and an answer without a container is an error.
func TestNonsense(t *testing.T) {
	n := newNode(t)
	p := newSample(t, n.dir, gpu, "a", "b", "c", "d")
	p.options.GetPreferredAllocationAvailable = true
	p.start()
	require.NoError(t, p.register())
	n.counts(4, 4)
	p.prefer = func(*api.ContainerPreferredAllocationRequest) []string { return []string{"x", "x", "", "d"} }
	p.allocate = func(_ context.Context, ids []string) (*api.ContainerAllocateResponse, error) {
		assert.Equal(t, []string{"d"}, ids)
		return nil, nil
	}
	_, err := n.run(podOf("pod", 1))
	require.ErrorContains(t, err,
		`the provider of example.com/gpu cannot allocate the devices ["d"]: its answer has no container`)
}

// A list that is too long for a message ends the stream, and not the agent.
func TestHugeList(t *testing.T) {
	n := newNode(t)
	p := newSample(t, n.dir, gpu, "a")
	p.start()
	require.NoError(t, p.register())
	n.counts(1, 1)
	var list []*api.Device
	for i := range 1_000_000 {
		list = append(list, &api.Device{ID: fmt.Sprint("device-", i), Health: api.Healthy})
	}
	p.set(list...)
	n.counts(1, 0)
	n.eventually("the log", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return strings.Contains(strings.Join(n.logged, "\n"), "its list of devices is too long for a message")
	})
}

// A process that accepts connections and is no plugin keeps no one else from registering.
func TestSilentPlugin(t *testing.T) {
	n := newNode(t)
	listener, err := net.Listen("unix", filepath.Join(n.dir, "silent.sock"))
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() {
		waits <- register(ctx, n.dir, &api.RegisterRequest{Version: api.Version, Endpoint: "silent.sock",
			ResourceName: gpu})
	}()
	p := newSample(t, n.dir, gpu, "a")
	p.start()
	require.NoError(t, p.register())
	n.counts(1, 1)
	cancel()
	require.Error(t, <-waits)
}

// A path that is too long for a socket is logged, and tried again.
func TestNoSocket(t *testing.T) {
	var logged sync.Map
	s, err := plugin.New(filepath.Join(t.TempDir(), strings.Repeat("x", 120)), &devices.Manager{})
	require.NoError(t, err)
	require.NoError(t, s.Join(&nodefake.Node{
		Log: funcr.New(func(_, args string) { logged.Store(args, true) }, funcr.Options{})}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	require.NoError(t, s.Healthy())
	go func() { done <- s.Run(ctx) }()
	require.Eventually(t, func() bool { return s.Healthy() != nil }, 10*time.Second, 5*time.Millisecond)
	require.ErrorContains(t, s.Healthy(), "no device plugins can register: ")
	require.Eventually(t, func() (ok bool) { logged.Range(func(any, any) bool { ok = true; return false }); return ok },
		10*time.Second, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	require.ErrorIs(t, s.Run(t.Context()), runtime.ErrAlreadyRunning)
}
