package plugins_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/kubeletkit/kubeletkit/node/plugins"
)

// printer is a handler of a type of its own.
type printer struct{ registered chan struct{} }

func (printer) Validate(p plugins.Plugin) error {
	if p.Name == "" {
		return fmt.Errorf("the plugin has no name")
	}
	return nil
}

func (p printer) Register(_ context.Context, plugin plugins.Plugin) error {
	fmt.Println("registered:", plugin.Name, plugin.Versions)
	close(p.registered)
	return nil
}

func (printer) Deregister(plugins.Plugin) {}

// meter is the plugin.
type meter struct {
	registerapi.UnimplementedRegistrationServer
}

func (meter) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: "Meter", Name: "meter.example.com", SupportedVersions: []string{"v1"}}, nil
}

func (meter) NotifyRegistrationStatus(context.Context,
	*registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	return &registerapi.RegistrationStatusResponse{}, nil
}

func Example() {
	dir, err := os.MkdirTemp("", "registry")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("unix", filepath.Join(dir, "meter.sock"))
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, meter{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	handler := printer{make(chan struct{})}
	manager, err := plugins.New(dir, map[string]plugins.Handler{"Meter": handler}, plugins.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(ctx) }()
	<-handler.registered
	stop()
	<-ended
	server.Stop()
	<-served
	// Output: registered: meter.example.com [v1]
}
