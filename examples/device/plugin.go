package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// devicePlugin offers the lines to a kubelet.
type devicePlugin struct {
	dir   string
	lines map[string]string // paths by IDs
	api.UnimplementedDevicePluginServer
}

func newPlugin(dir string, lines []string) *devicePlugin {
	p := &devicePlugin{dir: dir, lines: map[string]string{}}
	for _, path := range lines {
		p.lines[filepath.Base(path)] = path
	}
	return p
}

const (
	socketName = "modbus.sock"
	// lookAgain is the time between two looks for a kubelet that was restarted: it has removed the socket of the
	// plugin.
	lookAgain = time.Second
)

// run serves the plugin until ctx ends.
func (p *devicePlugin) run(ctx context.Context) error {
	for {
		if err := p.serve(ctx); ctx.Err() != nil {
			return nil
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "device: is there no kubelet?", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookAgain):
		}
	}
}

// serve serves the socket, registers, and returns when the socket is gone.
func (p *devicePlugin) serve(ctx context.Context) error {
	path := filepath.Join(p.dir, socketName)
	_ = os.Remove(path) // of an earlier run
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		<-served
	}()
	if err := p.register(ctx); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookAgain):
		}
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
}

// register registers the plugin with the kubelet.
func (p *devicePlugin) register(ctx context.Context) error {
	conn, err := grpc.NewClient("unix:"+filepath.Join(p.dir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{Version: api.Version,
		Endpoint: socketName, ResourceName: modbus})
	return err
}

// GetDevicePluginOptions implements the service DevicePlugin.
func (p *devicePlugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch implements the service DevicePlugin. A line is healthy if its device node is there.
func (p *devicePlugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		var list []*api.Device
		for id, path := range p.lines {
			health := api.Healthy
			if _, err := os.Stat(path); err != nil {
				health = api.Unhealthy
			}
			list = append(list, &api.Device{ID: id, Health: health})
		}
		if err := stream.Send(&api.ListAndWatchResponse{Devices: list}); err != nil {
			// also without a change, which costs little
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(lookAgain):
		}
	}
}

// Allocate implements the service DevicePlugin.
func (p *devicePlugin) Allocate(_ context.Context, req *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, r := range req.ContainerRequests {
		one := &api.ContainerAllocateResponse{}
		for _, id := range r.DevicesIds {
			one.Devices = append(one.Devices, &api.DeviceSpec{HostPath: p.lines[id], ContainerPath: "/dev/modbus",
				Permissions: "rw"})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}
