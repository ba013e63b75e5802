package plugin_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubeletkit/kubeletkit/node/devices/plugin"
	"github.com/kubeletkit/kubeletkit/node/plugins"
)

// sample behaves as Kubernetes' sample device plugin: it serves its socket in the directory, registers, and when its
// socket or that of the agent is made anew, it serves and registers again.
type sample struct {
	t        testing.TB
	dir      string
	resource string
	socket   string
	options  *api.DevicePluginOptions

	allocate func(ctx context.Context, ids []string) (*api.ContainerAllocateResponse, error)
	prefer   func(req *api.ContainerPreferredAllocationRequest) []string
	preStart func(ctx context.Context, ids []string) error
	// entered is called at the begin of each call, which returns its error. If nil, it is not called. mu guards it.
	entered func(ctx context.Context, call string) error

	api.UnimplementedDevicePluginServer

	mu      sync.Mutex
	server  *grpc.Server
	served  chan error
	list    []*api.Device
	changed chan struct{}
}

func newSample(t testing.TB, dir, resource string, ids ...string) *sample {
	p := &sample{t: t, dir: dir, resource: resource, socket: filepath.Join(dir, filepath.Base(resource)+".sock"),
		options: &api.DevicePluginOptions{}, changed: make(chan struct{})}
	for _, id := range ids {
		p.list = append(p.list, &api.Device{ID: id, Health: api.Healthy})
	}
	t.Cleanup(p.stop)
	return p
}

func (p *sample) start() {
	_ = os.Remove(p.socket)
	listener, err := net.Listen("unix", p.socket)
	require.NoError(p.t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server, p.served = grpc.NewServer(), make(chan error, 1)
	api.RegisterDevicePluginServer(p.server, p)
	go func(server *grpc.Server, served chan error) { served <- server.Serve(listener) }(p.server, p.served)
}

func (p *sample) stop() {
	p.mu.Lock()
	server, served := p.server, p.served
	p.server = nil
	p.mu.Unlock()
	if server != nil {
		server.Stop()
		<-served
	}
}

// register registers at the socket of the agent.
func (p *sample) register() error {
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	return register(ctx, p.dir, &api.RegisterRequest{Version: api.Version, Endpoint: filepath.Base(p.socket),
		ResourceName: p.resource, Options: p.options})
}

func register(ctx context.Context, dir string, req *api.RegisterRequest) error {
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, plugin.SocketName),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = api.NewRegistrationClient(conn).Register(ctx, req, grpc.WaitForReady(true))
	return err
}

// set replaces the devices.
func (p *sample) set(list ...*api.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = list
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *sample) enter(ctx context.Context, call string) error {
	p.mu.Lock()
	entered := p.entered
	p.mu.Unlock()
	if entered == nil {
		return nil
	}
	return entered(ctx, call)
}

func (p *sample) setEntered(f func(ctx context.Context, call string) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entered = f
}

func (p *sample) GetDevicePluginOptions(ctx context.Context, _ *api.Empty) (*api.DevicePluginOptions, error) {
	return p.options, p.enter(ctx, "GetDevicePluginOptions")
}

func (p *sample) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	if err := p.enter(stream.Context(), "ListAndWatch"); err != nil {
		return err
	}
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

func (p *sample) GetPreferredAllocation(ctx context.Context,
	req *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	if err := p.enter(ctx, "GetPreferredAllocation"); err != nil {
		return nil, err
	}
	answer := &api.PreferredAllocationResponse{}
	for _, r := range req.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses,
			&api.ContainerPreferredAllocationResponse{DeviceIDs: p.prefer(r)})
	}
	return answer, nil
}

func (p *sample) Allocate(ctx context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	if err := p.enter(ctx, "Allocate"); err != nil {
		return nil, err
	}
	answer := &api.AllocateResponse{}
	for _, r := range req.ContainerRequests {
		one, err := p.allocate(ctx, r.DevicesIds)
		if err != nil {
			return nil, err
		}
		if one != nil {
			answer.ContainerResponses = append(answer.ContainerResponses, one)
		}
	}
	return answer, nil
}

func (p *sample) PreStartContainer(ctx context.Context,
	req *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	if err := p.enter(ctx, "PreStartContainer"); err != nil {
		return nil, err
	}
	return &api.PreStartContainerResponse{}, p.preStart(ctx, req.DevicesIds)
}

// plugin is the sample as the plugin manager finds it.
func (p *sample) plugin() plugins.Plugin {
	return plugins.Plugin{Type: plugins.TypeDevice, Name: p.resource, Endpoint: p.socket,
		Versions: []string{api.Version}}
}
