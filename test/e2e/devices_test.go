package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

const nulls = "example.com/null"

// nullPlugin is a device plugin whose devices are all the same one, /dev/null. As plugins do, it serves and registers
// again when an agent that has started has removed its socket.
type nullPlugin struct {
	dir, path string
	api.UnimplementedDevicePluginServer

	mu       sync.Mutex
	list     []*api.Device
	changed  chan struct{}
	allocate int
}

// startNullPlugin serves the plugin until the test ends, or the function is called that it returns.
func startNullPlugin(t *testing.T, dir string, ids ...string) (p *nullPlugin, stop func()) {
	p = &nullPlugin{dir: dir, path: "/dev/null"}
	for _, id := range ids {
		p.list = append(p.list, &api.Device{ID: id, Health: api.Healthy})
	}
	return p, p.start(t)
}

func (p *nullPlugin) start(t *testing.T) (stop func()) {
	p.changed = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = p.serve(ctx) // there is no agent for a while
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

func (p *nullPlugin) serve(ctx context.Context) error {
	path := filepath.Join(p.dir, "null.sock")
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		pause(ctx)
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { server.Stop(); <-served }()
	conn, err := grpc.NewClient("unix:"+filepath.Join(p.dir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{Version: api.Version,
		Endpoint: "null.sock", ResourceName: nulls}); err != nil {
		pause(ctx)
		return err
	}
	for ctx.Err() == nil {
		if _, err := os.Lstat(path); err != nil {
			return err
		}
		pause(ctx)
	}
	return nil
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
}

func (p *nullPlugin) set(health string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.list
	p.list = nil
	for _, d := range list {
		p.list = append(p.list, &api.Device{ID: d.ID, Health: health, Topology: d.Topology})
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *nullPlugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{PreStartRequired: true}, nil
}

func (p *nullPlugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		p.mu.Lock()
		list, changed := p.list, p.changed
		p.mu.Unlock()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: list}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

func (p *nullPlugin) Allocate(_ context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := &api.AllocateResponse{}
	for _, r := range req.ContainerRequests {
		p.allocate++
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"NULLS": strings.Join(r.DevicesIds, ",")},
			Devices: []*api.DeviceSpec{{HostPath: p.path, ContainerPath: "/dev/null-" + r.DevicesIds[0],
				Permissions: "rw"}},
		})
	}
	return answer, nil
}

func (p *nullPlugin) PreStartContainer(context.Context,
	*api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, nil
}

// withNulls has the main container request devices.
func withNulls(n int64) Option {
	return func(pod *v1.Pod) {
		q := *resource.NewQuantity(n, resource.DecimalSI)
		pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{nulls: q}
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{nulls: q}
	}
}

// health is the condition that the devices of the main container are these, with this health. The order of a kubelet is
// that of a map.
func health(of v1.ResourceHealthStatus, ids ...string) Condition {
	return func(pod *v1.Pod) error {
		var got []string
		for _, c := range pod.Status.ContainerStatuses[:min(1, len(pod.Status.ContainerStatuses))] {
			for _, r := range c.AllocatedResourcesStatus {
				for _, d := range r.Resources {
					if r.Name == nulls && d.Health == of {
						got = append(got, string(d.ResourceID))
					}
				}
			}
		}
		if slices.Sort(got); !slices.Equal(got, ids) {
			return fmt.Errorf("its devices with health %s are %v, not %v", of, got, ids)
		}
		return nil
	}
}

// A device plugin gives containers of containerd devices. Pods keep them when the agent is killed, and wait for the
// plugin when they are started without it.
func TestDevicePlugin(t *testing.T) {
	t.Parallel()
	s := newSuite(t, AgentOptions{})
	plugin, stop := startNullPlugin(t, filepath.Join(s.agent.Root, "device-plugins"), "a", "b", "c")
	checkpoint := filepath.Join(s.agent.Root, "device-plugins", "kubelet_internal_checkpoint")
	Eventually(t, within, "the plugin is registered", func() error {
		_, err := os.Stat(checkpoint)
		return err
	})
	pod := MakePod("devices", Main(Sh("main", Forever)), withNulls(2))
	pod.UID = podUID(1)
	s.put(t, pod)
	name := FullName(pod)
	s.agent.Await(t, pod, within, Running, health(v1.ResourceHealthStatusHealthy, "a", "b"))
	assert.Equal(t, "a,b\n", s.Exec(t, name, "main", "sh", "-c", "echo $NULLS"))
	assert.Equal(t, "1:3\n", s.Exec(t, name, "main", "stat", "-c", "%t:%T", "/dev/null-a"))
	tooMany := s.put(t, MakePod("devices-too-many", Main(Sh("main", Forever)), withNulls(2)))
	got := s.agent.Await(t, tooMany, within, Phase(v1.PodFailed))
	assert.Equal(t, "UnexpectedAdmissionError", got.Status.Reason)
	s.remove(t, tooMany) // later agents would admit it again, and it would wait for the plugin

	id := s.Newest(t, name, "main").Id
	s.agent.Kill(t)
	s.agent.Start(t)
	s.agent.WaitHealthy(t)
	s.agent.Await(t, pod, within, Running, health(v1.ResourceHealthStatusHealthy, "a", "b"))
	assert.Equal(t, id, s.Newest(t, name, "main").Id, "it is not restarted")
	plugin.set(api.Unhealthy)
	s.agent.Await(t, pod, within, health(v1.ResourceHealthStatusUnhealthy, "a", "b"))
	plugin.set(api.Healthy)
	s.agent.Await(t, pod, within, health(v1.ResourceHealthStatusHealthy, "a", "b"))

	// As after a reboot: nothing runs, and there is no plugin.
	stop()
	s.agent.Kill(t)
	s.KillProcess(t, name, "main")
	Eventually(t, within, "the container has exited", func() error {
		// else it runs when the agent starts, and needs no plugin
		if state := s.Newest(t, name, "main").State; state != cri.ContainerState_CONTAINER_EXITED {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	s.agent.Start(t)
	s.agent.WaitHealthy(t)
	s.awaitSaid(t, "waiting for the provider of example.com/null", 1)
	assert.Equal(t, id, s.Newest(t, name, "main").Id)
	again, _ := startNullPlugin(t, filepath.Join(s.agent.Root, "device-plugins"), "c", "b", "a")
	Eventually(t, within, "another instance", func() error {
		if s.Newest(t, name, "main").Id == id {
			return errors.New("the same")
		}
		return nil
	})
	s.agent.Await(t, pod, within, Running, health(v1.ResourceHealthStatusHealthy, "a", "b"))
	assert.Equal(t, "a,b\n", s.Exec(t, name, "main", "sh", "-c", "echo $NULLS"))
	s.remove(t, pod)
	next := s.put(t, MakePod("devices-next", Main(Sh("main", Forever)), withNulls(3)))
	s.agent.Await(t, next, within, Running, health(v1.ResourceHealthStatusHealthy, "a", "b", "c"))
	plugin.mu.Lock()
	again.mu.Lock()
	defer plugin.mu.Unlock()
	defer again.mu.Unlock()
	assert.Equal(t, []int{1, 1}, []int{plugin.allocate, again.allocate}, "once for each container")
	require.FileExists(t, checkpoint)
}
