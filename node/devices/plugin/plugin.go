package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Plugin is a device plugin as a provider of devices. Make one with [Connect].
type Plugin struct {
	resource v1.ResourceName
	socket   string
	conn     *grpc.ClientConn
	client   api.DevicePluginClient
	options  *api.DevicePluginOptions
	// replaces end the earlier connections to the same socket, when this one is served. kubelet refuses a plugin as
	// long as it has one.
	replaces []context.CancelFunc
}

var _ devices.Provider = (*Plugin)(nil)

// connectTimeout is that of kubelet.
const connectTimeout = 10 * time.Second

// Connect connects to the plugin at the socket, and asks it for its options. It waits up to 10 s for the socket. The
// caller calls [Plugin.Close].
func Connect(ctx context.Context, resource v1.ResourceName, socket string) (*Plugin, error) {
	conn, err := grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}))
	if err != nil {
		return nil, fmt.Errorf("device plugin of %s at %s: %w", resource, socket, err)
	}
	p := &Plugin{resource: resource, socket: socket, conn: conn, client: api.NewDevicePluginClient(conn)}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if p.options, err = p.client.GetDevicePluginOptions(ctx, &api.Empty{}, grpc.WaitForReady(true)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("device plugin of %s at %s: failed to get device plugin options: %w", resource, socket,
			err)
	}
	return p, nil
}

// Close ends the connection. Calls fail then.
func (p *Plugin) Close() error { return p.conn.Close() }

// Resource implements [devices.Provider].
func (p *Plugin) Resource() v1.ResourceName { return p.resource }

// Watch implements [devices.Provider]. It returns when the stream of the plugin ends.
func (p *Plugin) Watch(ctx context.Context, update func([]devices.Device)) error {
	for _, end := range p.replaces {
		end()
	}
	stream, err := p.client.ListAndWatch(ctx, &api.Empty{})
	for err == nil {
		var list *api.ListAndWatchResponse
		if list, err = stream.Recv(); err == nil {
			update(convert(list.GetDevices()))
		}
	}
	if status.Code(err) == codes.ResourceExhausted {
		err = fmt.Errorf("its list of devices is too long for a message: the plugin has to offer fewer devices: %w",
			err)
	}
	return fmt.Errorf("device plugin of %s at %s: %w", p.resource, p.socket, err)
}

func convert(list []*api.Device) []devices.Device {
	out := make([]devices.Device, len(list))
	for i, d := range list {
		out[i] = devices.Device{ID: d.GetID(), Unhealthy: d.GetHealth() != api.Healthy}
		for _, node := range d.GetTopology().GetNodes() {
			if id := node.GetID(); 0 <= id && id < numa.MaxNodes {
				out[i].Nodes |= numa.Of(int(id))
			}
		}
	}
	return out
}

// Prefer implements [devices.Provider].
func (p *Plugin) Prefer(ctx context.Context, req devices.PreferRequest) ([]string, error) {
	if !p.options.GetGetPreferredAllocationAvailable() {
		return nil, nil
	}
	answer, err := p.client.GetPreferredAllocation(ctx,
		&api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: req.Available, MustIncludeDeviceIDs: req.Required, AllocationSize: int32(req.Count),
		}}})
	if err != nil || len(answer.GetContainerResponses()) == 0 {
		return nil, err
	}
	return answer.ContainerResponses[0].GetDeviceIDs(), nil
}

// Allocate implements [devices.Provider].
func (p *Plugin) Allocate(ctx context.Context, req devices.Request) (e runtime.ContainerEdits, err error) {
	answer, err := p.client.Allocate(ctx,
		&api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: req.IDs}}})
	if err != nil {
		return e, err
	}
	if len(answer.GetContainerResponses()) == 0 {
		return e, errors.New("its answer has no container")
	}
	r := answer.ContainerResponses[0]
	for _, name := range slices.Sorted(maps.Keys(r.GetEnvs())) {
		e.Env = append(e.Env, v1.EnvVar{Name: name, Value: r.Envs[name]})
	}
	for _, m := range r.GetMounts() {
		e.Mounts = append(e.Mounts, runtime.BindMount{HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(),
			ReadOnly: m.GetReadOnly()})
	}
	for _, d := range r.GetDevices() {
		e.Devices = append(e.Devices, runtime.Device{HostPath: d.GetHostPath(), ContainerPath: d.GetContainerPath(),
			Permissions: d.GetPermissions()})
	}
	for _, d := range r.GetCdiDevices() {
		e.CDIDevices = append(e.CDIDevices, d.GetName())
	}
	e.Annotations = r.GetAnnotations()
	return e, nil
}

// PreStart implements [devices.Provider].
func (p *Plugin) PreStart(ctx context.Context, req devices.Request) error {
	if !p.options.GetPreStartRequired() {
		return nil
	}
	_, err := p.client.PreStartContainer(ctx, &api.PreStartContainerRequest{DevicesIds: req.IDs})
	return err
}
