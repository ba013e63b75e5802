package prober

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/prober/grpcprobe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// grpcHandler calls the gRPC health service.
type grpcHandler struct {
	plain *grpcprobe.Client
	// tls is for probes of that mode; it is plain if there is no such mode.
	tls *grpcprobe.Client
}

func newGRPCHandler(opts Options) grpcHandler {
	return grpcHandler{
		&grpcprobe.Client{UserAgent: opts.UserAgent, Dial: dial},
		&grpcprobe.Client{UserAgent: opts.UserAgent, Dial: dial, TLS: opts.GRPCTLS},
	}
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
	client := h.plain
	if mode := t.Probe.GRPC.Mode; mode != nil && *mode == v1.GRPCProbeModeTLS {
		client = h.tls
	}
	healthy, message := client.Probe(ctx, address, service, t.Timeout)
	switch {
	case healthy:
		return Success, message, nil
	case ctx.Err() != nil:
		return Unknown, "", context.Cause(ctx)
	default:
		return Failure, message, nil
	}
}
