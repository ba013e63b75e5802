package podresources_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	apiv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	apiv1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/utils/cpuset"

	"github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/node/podresources"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// serve runs a server in the test, and returns a connection to it.
func serve(t *testing.T, path string, s *podresources.Server) *grpc.ClientConn {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	require.Eventually(t, func() bool {
		c, err := net.Dial("unix", path)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, 10*time.Second, time.Millisecond)
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		assert.NoError(t, <-done)
	})
	return conn
}

// socket returns a path that is short enough for a socket.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "p")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "pod-resources", "kubelet.sock")
}

func web() *v1.Pod {
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "default", "web", "uid"
	pod.Spec.InitContainers = []v1.Container{{Name: "init"},
		{Name: "side", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
	pod.Spec.Containers = []v1.Container{{Name: "main"}}
	return pod
}

var source = podresources.Source{
	Of: func(pod *v1.Pod, c *v1.Container) podresources.Resources {
		if c.Name != "main" {
			return podresources.Resources{}
		}
		return podresources.Resources{
			Devices: []podresources.Devices{{Resource: "example.com/gpu", IDs: []string{string(pod.UID) + "-0", "1"},
				Nodes: numa.Of(0, 1)}, {Resource: "example.com/port", IDs: []string{"a"}}},
			CPUs: cpuset.New(3, 2), Memory: []podresources.Memory{{Resource: "memory", Size: 1 << 30,
				Nodes: numa.Of(1)}},
			Claims: []podresources.Claim{{Namespace: "default", Name: "claim", Devices: []podresources.ClaimDevice{
				{Driver: "d", Pool: "p", Device: "0", ShareID: "s", CDIDevices: []string{"d.com/x=0"}}, {Driver: "d", Pool: "p", Device: "1"},
			}}},
		}
	},
	OfPod: func(*v1.Pod) podresources.Resources {
		return podresources.Resources{CPUs: cpuset.New(2, 3, 4), Memory: []podresources.Memory{{Resource: "memory",
			Size: 2 << 30, Nodes: numa.Of(1)}}}
	},
	Allocatable: func() podresources.Resources {
		return podresources.Resources{CPUs: cpuset.New(0, 1, 2, 3),
			Memory: []podresources.Memory{{Resource: "memory", Size: 4 << 30, Nodes: numa.Of(0)}}}
	},
}

func json(t *testing.T, text string, into proto.Message) proto.Message {
	t.Helper()
	require.NoError(t, protojson.Unmarshal([]byte(text), into))
	return into
}

const webJSON = `{"name": "web", "namespace": "default", "cpuIds": [2, 3, 4],
	"memory": [{"memoryType": "memory", "size": 2147483648, "topology": {"nodes": [{"ID": 1}]}}], "containers": [{"name": "side"}, {"name": "main",
	"devices": [{"resourceName": "example.com/gpu", "deviceIds": ["uid-0"], "topology": {"nodes": [{}]}}, {"resourceName": "example.com/gpu", "deviceIds": ["uid-0"], "topology": {"nodes": [{"ID": 1}]}},
		{"resourceName": "example.com/gpu", "deviceIds": ["1"], "topology": {"nodes": [{}]}}, {"resourceName": "example.com/gpu", "deviceIds": ["1"], "topology": {"nodes": [{"ID": 1}]}}, {"resourceName": "example.com/port", "deviceIds": ["a"]}],
	"cpuIds": [2, 3], "memory": [{"memoryType": "memory", "size": 1073741824, "topology": {"nodes": [{"ID": 1}]}}],
	"dynamicResources": [{"claimName": "claim", "claimNamespace": "default", "claimResources": [
		{"driverName": "d", "poolName": "p", "deviceName": "0", "shareId": "s", "cdiDevices": [{"name": "d.com/x=0"}]}, {"driverName": "d", "poolName": "p", "deviceName": "1"}]}]}]}`

func TestAPI(t *testing.T) {
	var mu sync.Mutex
	var requests []string
	path := socket(t)
	server, err := podresources.New(path, []podresources.Source{source, {}}, podresources.Options{
		Request: func(version, method string, err error) {
			mu.Lock()
			defer mu.Unlock()
			text := version + " " + method
			if err != nil {
				text += " failed"
			}
			requests = append(requests, text)
		},
	})
	require.NoError(t, err)
	require.NoError(t, server.Join(fake.NewNode(web())))
	conn := serve(t, path, server)
	assert.ErrorIs(t, server.Run(t.Context()), runtime.ErrAlreadyRunning)
	client, ctx := apiv1.NewPodResourcesListerClient(conn), t.Context()
	equal := func(want string, into, got proto.Message, err error) {
		t.Helper()
		require.NoError(t, err)
		message := json(t, want, into)
		assert.True(t, proto.Equal(message, got), "%s\n%s", message, got)
	}
	list, err := client.List(ctx, &apiv1.ListPodResourcesRequest{})
	equal(`{"podResources": [`+webJSON+`]}`, &apiv1.ListPodResourcesResponse{}, list, err)
	get, err := client.Get(ctx, &apiv1.GetPodResourcesRequest{PodNamespace: "default", PodName: "web"})
	equal(`{"podResources": `+webJSON+`}`, &apiv1.GetPodResourcesResponse{}, get, err)
	_, err = client.Get(ctx, &apiv1.GetPodResourcesRequest{PodNamespace: "other", PodName: "web"})
	assert.Equal(t, codes.NotFound, status.Code(err))
	assert.ErrorContains(t, err, "pod web in namespace other not found")
	all, err := client.GetAllocatableResources(ctx, &apiv1.AllocatableResourcesRequest{})
	equal(
		`{"cpuIds": [0, 1, 2, 3], "memory": [{"memoryType": "memory", "size": 4294967296, "topology": {"nodes": [{}]}}]}`, &apiv1.AllocatableResourcesResponse{}, all, err)
	old, err := apiv1alpha1.NewPodResourcesListerClient(conn).List(ctx, &apiv1alpha1.ListPodResourcesRequest{})
	equal(`{"podResources": [{"name": "web", "namespace": "default", "containers": [{"name": "main",
		"devices": [{"resourceName": "example.com/gpu", "deviceIds": ["uid-0"]}, {"resourceName": "example.com/gpu", "deviceIds": ["uid-0"]},
			{"resourceName": "example.com/gpu", "deviceIds": ["1"]}, {"resourceName": "example.com/gpu", "deviceIds": ["1"]}, {"resourceName": "example.com/port", "deviceIds": ["a"]}]}]}]}`,
		&apiv1alpha1.ListPodResourcesResponse{}, old, err)
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []string{"v1 List", "v1 Get", "v1 Get failed", "v1 GetAllocatableResources", "v1alpha1 List"},
		requests)
}

func TestLimit(t *testing.T) {
	path := socket(t)
	server, err := podresources.New(path, nil, podresources.Options{QPS: 1, Burst: 2})
	require.NoError(t, err)
	client := apiv1.NewPodResourcesListerClient(serve(t, path, server))
	var refused error
	for range 4 {
		if _, err := client.List(t.Context(), &apiv1.ListPodResourcesRequest{}); err != nil {
			refused = err
		}
	}
	assert.Equal(t, codes.ResourceExhausted, status.Code(refused))
}

// A panic of a source fails its request. A socket that an earlier agent has left is replaced.
func TestBadSource(t *testing.T) {
	path := socket(t)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	for _, name := range []string{path, path + ".new"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name})
		require.NoError(t, err)
		l.SetUnlinkOnClose(false)
		require.NoError(t, l.Close())
	}
	server, err := podresources.New(path, []podresources.Source{
		{Of: func(*v1.Pod, *v1.Container) podresources.Resources { panic("broken") }},
	}, podresources.Options{})
	require.NoError(t, err)
	require.NoError(t, server.Join(fake.NewNode(web())))
	client := apiv1.NewPodResourcesListerClient(serve(t, path, server))
	_, err = client.List(t.Context(), &apiv1.ListPodResourcesRequest{})
	assert.ErrorContains(t, err, "broken")
	_, err = client.GetAllocatableResources(t.Context(), &apiv1.AllocatableResourcesRequest{})
	assert.NoError(t, err)
}

func TestProblems(t *testing.T) {
	_, err := podresources.New("", nil, podresources.Options{QPS: -1})
	for _, problem := range []string{"path", "positive"} {
		assert.ErrorContains(t, err, problem)
	}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	server, err := podresources.New(filepath.Join(file, "kubelet.sock"), nil, podresources.Options{})
	require.NoError(t, err)
	var logged []string
	require.NoError(t, server.Join(&fake.Node{
		Log: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})}))
	require.NoError(t, server.Run(t.Context()), "the agent does without")
	assert.Len(t, logged, 1)
}
