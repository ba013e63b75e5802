package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	drapbv1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbv1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/dra"
	"github.com/kubeletkit/kubeletkit/node/plugins"
)

// driver is a plugin. It implements [dra.Driver].
type driver struct {
	name     string
	conn     *grpc.ClientConn
	client   client
	endpoint *dra.Endpoint
}

// client is the service of a plugin, in version v1.
type client interface {
	NodePrepareResources(ctx context.Context, in *drapbv1.NodePrepareResourcesRequest,
		opts ...grpc.CallOption) (*drapbv1.NodePrepareResourcesResponse, error)
	NodeUnprepareResources(ctx context.Context, in *drapbv1.NodeUnprepareResourcesRequest,
		opts ...grpc.CallOption) (*drapbv1.NodeUnprepareResourcesResponse, error)
}

func newDriver(p plugins.Plugin, service string, node lifecycle.Node) (*driver, error) {
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn,
			call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			began := time.Now()
			err := call(ctx, method, in, out, conn, opts...)
			node.Measure(dra.Call{Driver: p.Name, Method: method, Code: status.Code(err).String(),
				Took: time.Since(began)})
			return err
		}),
		grpc.WithIdleTimeout(0), // the connection shows whether the plugin is there
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: 5 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", p.Endpoint)
		}))
	if err != nil {
		return nil, fmt.Errorf("connecting to DRA driver %s at %s: %w", p.Name, p.Endpoint, err)
	}
	d := &driver{name: p.Name, conn: conn}
	if d.client = drapbv1.NewDRAPluginClient(conn); service == drapbv1beta1.DRAPluginService {
		d.client = drapbv1beta1.V1Beta1ClientWrapper{DRAPluginClient: drapbv1beta1.NewDRAPluginClient(conn)}
	}
	return d, nil
}

// watch keeps the connection until ctx ends, and closes it.
func (d *driver) watch(ctx context.Context) {
	defer func() { _ = d.conn.Close() }()
	for {
		s := d.conn.GetState()
		if s == connectivity.Idle {
			d.conn.Connect()
		}
		d.endpoint.SetConnected(s == connectivity.Ready)
		if !d.conn.WaitForStateChange(ctx, s) {
			return
		}
	}
}

func request(claims []dra.Claim) (out []*drapbv1.Claim) {
	for _, c := range claims {
		out = append(out, &drapbv1.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)})
	}
	return out
}

// Prepare implements [dra.Driver].
func (d *driver) Prepare(ctx context.Context, claims []dra.Claim) (map[types.UID]dra.Prepared, error) {
	response, err := d.client.NodePrepareResources(ctx, &drapbv1.NodePrepareResourcesRequest{Claims: request(claims)})
	if err != nil {
		return nil, err
	}
	out := map[types.UID]dra.Prepared{}
	for uid, r := range response.GetClaims() {
		var p dra.Prepared
		if r.GetError() != "" {
			p.Err = errors.New(r.GetError())
		}
		for _, device := range r.GetDevices() {
			p.Devices = append(p.Devices, dra.Device{
				Pool: device.GetPoolName(), Name: device.GetDeviceName(), Requests: device.GetRequestNames(),
				CDIDevices: device.GetCdiDeviceIds(),
			})
			if device != nil && device.ShareId != nil {
				p.Devices[len(p.Devices)-1].ShareID = new(types.UID(*device.ShareId))
			}
		}
		out[types.UID(uid)] = p
	}
	return out, nil
}

// Unprepare implements [dra.Driver].
func (d *driver) Unprepare(ctx context.Context, claims []dra.Claim) (map[types.UID]error, error) {
	response, err := d.client.NodeUnprepareResources(ctx,
		&drapbv1.NodeUnprepareResourcesRequest{Claims: request(claims)})
	if err != nil {
		return nil, err
	}
	out := map[types.UID]error{}
	for uid, r := range response.GetClaims() {
		out[types.UID(uid)] = nil
		if r.GetError() != "" {
			out[types.UID(uid)] = errors.New(r.GetError())
		}
	}
	return out, nil
}
