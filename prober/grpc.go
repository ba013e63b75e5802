package prober

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/prober/grpcprobe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// grpcHandler calls the gRPC health service.
type grpcHandler struct{ client *grpcprobe.Client }

func newGRPCHandler(userAgent string) grpcHandler {
	return grpcHandler{&grpcprobe.Client{UserAgent: userAgent, Dial: dial}}
}

func (grpcHandler) Name() string { return "grpc" }

func (grpcHandler) Probe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) *v1.Probe {
	return specProbe(c, kind, func(p *v1.Probe) bool { return p.GRPC != nil })
}

func (h grpcHandler) Check(ctx context.Context, t Target) (Outcome, string, error) {
	address, err := t.HostPort("", intstr.FromInt32(t.Probe.GRPC.Port))
	if err != nil {
		return Unknown, "", err
	}
	service := ""
	if t.Probe.GRPC.Service != nil {
		service = *t.Probe.GRPC.Service
	}
	healthy, message := h.client.Probe(ctx, address, service, t.Timeout)
	switch {
	case healthy:
		return Success, message, nil
	case ctx.Err() != nil:
		return Unknown, "", context.Cause(ctx)
	default:
		return Failure, message, nil
	}
}
