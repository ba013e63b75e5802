package plugins

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registration is a connection to a plugin.
type registration interface {
	GetInfo(ctx context.Context, in *registerapi.InfoRequest, opts ...grpc.CallOption) (*registerapi.PluginInfo, error)
	NotifyRegistrationStatus(ctx context.Context, in *registerapi.RegistrationStatus,
		opts ...grpc.CallOption) (*registerapi.RegistrationStatusResponse, error)
	Close() error
}

type connection struct {
	registerapi.RegistrationClient
	*grpc.ClientConn
	connected chan net.Conn
}

// dial connects to a socket. If nobody listens there, which costs a system call, it makes no client.
func dial(ctx context.Context, socket string) (registration, error) {
	first, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	connected := make(chan net.Conn, 1) // has the first connection until it is used
	connected <- first
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			select {
			case first := <-connected:
				return first, nil
			default:
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			}
		}))
	if err != nil {
		return nil, errors.Join(err, first.Close())
	}
	return connection{registerapi.NewRegistrationClient(conn), conn, connected}, nil
}

// Close closes the connection, also if no call was made.
func (c connection) Close() error {
	err := c.ClientConn.Close()
	select {
	case first := <-c.connected:
		err = errors.Join(err, first.Close())
	default:
	}
	return err
}
