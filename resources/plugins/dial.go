package plugins

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registration is a connection to a plugin.
type registration interface {
	GetInfo(ctx context.Context, in *registerapi.InfoRequest, opts ...grpc.CallOption) (*registerapi.PluginInfo, error)
	NotifyRegistrationStatus(ctx context.Context, in *registerapi.RegistrationStatus, opts ...grpc.CallOption) (*registerapi.RegistrationStatusResponse, error)
	Close() error
}

type connection struct {
	registerapi.RegistrationClient
	*grpc.ClientConn
}

// dial returns a connection that is made with the first call.
func dial(socket string) (registration, error) {
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}))
	if err != nil {
		return nil, err
	}
	return connection{registerapi.NewRegistrationClient(conn), conn}, nil
}
