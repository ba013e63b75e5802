package plugin

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drahealthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/node/dra"
)

// healthRetry is the time until a stream that has ended is opened again. It is kubelet's.
const healthRetry = 5 * time.Second

// followHealth passes on what the plugin reports of its devices until ctx ends.
func (d *driver) followHealth(ctx context.Context, service string, log logr.Logger) {
	failed := false
	for {
		err := d.streamHealth(ctx, service)
		if ctx.Err() != nil { // the reports hold for the next agent
			return
		}
		d.endpoint.ClearHealth()
		if status.Code(err) == codes.Unimplemented { // the plugin has no health to report
			return
		}
		if err != nil && !failed {
			failed = true
			log.Error(err, "The health of devices is not known; opening the stream again", "driver", d.name,
				"every", healthRetry)
		} else if err == nil {
			failed = false
		}
		if !flow.Sleep(ctx, healthRetry) {
			return
		}
	}
}

// streamHealth reads one stream until it ends. An error means that it has delivered nothing.
func (d *driver) streamHealth(ctx context.Context, service string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if service == drahealthv1alpha1.DRAResourceHealthService {
		stream, err := drahealthv1alpha1.NewDRAResourceHealthClient(d.conn).NodeWatchResources(ctx,
			&drahealthv1alpha1.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		return receive(d.endpoint, stream.Recv,
			func(r *drahealthv1alpha1.NodeWatchResourcesResponse) (list []dra.DeviceHealth) {
				for _, h := range r.GetDevices() {
					list = append(list, dra.DeviceHealth{
						Pool: h.GetDevice().GetPoolName(), Name: h.GetDevice().GetDeviceName(),
						Health:  health(int32(h.GetHealth())),
						Timeout: timeout(h.GetHealthCheckTimeoutSeconds()), Message: h.GetMessage(),
					})
				}
				return list
			})
	}
	stream, err := drahealthv1.NewDRAResourceHealthClient(d.conn).NodeWatchResources(ctx,
		&drahealthv1.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	return receive(d.endpoint, stream.Recv, func(r *drahealthv1.NodeWatchResourcesResponse) (list []dra.DeviceHealth) {
		for _, h := range r.GetDevices() {
			list = append(list, dra.DeviceHealth{
				Pool: h.GetDevice().GetPoolName(), Name: h.GetDevice().GetDeviceName(),
				Health:  health(int32(h.GetHealth())),
				Timeout: timeout(h.GetHealthCheckTimeoutSeconds()), Message: h.GetMessage(),
			})
		}
		return list
	})
}

// receive passes on the reports of a stream. An error means that it has delivered nothing.
func receive[R any](e *dra.Endpoint, recv func() (R, error), devices func(R) []dra.DeviceHealth) error {
	for received := false; ; received = true {
		report, err := recv()
		switch {
		case err != nil && received:
			return nil
		case err != nil:
			return err
		}
		e.SetHealth(devices(report))
	}
}

// health translates the health of both versions, which have the same numbers.
func health(number int32) v1.ResourceHealthStatus {
	switch drahealthv1.HealthStatus(number) {
	case drahealthv1.HealthStatus_HEALTHY:
		return v1.ResourceHealthStatusHealthy
	case drahealthv1.HealthStatus_UNHEALTHY:
		return v1.ResourceHealthStatusUnhealthy
	default:
		return v1.ResourceHealthStatusUnknown
	}
}

// timeout returns the time for which a report holds, 0 for the default.
func timeout(seconds int64) time.Duration {
	const most = 100 * 365 * 24 * 60 * 60
	return time.Duration(min(max(seconds, 0), most)) * time.Second
}
