package kubelet

import (
	"context"
	"fmt"
	"net/http"

	"google.golang.org/grpc/stats"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// TracingConfig is the setting tracing of a configuration.
type TracingConfig struct {
	// Endpoint is the address of a collector, as in "localhost:4317". If it is empty, the tracer has a default.
	Endpoint string
	// SamplingRatePerMillion is how many of a million traces are recorded that begin here.
	SamplingRatePerMillion int32
	// NodeName is the name of the node.
	NodeName string
}

// Tracer makes spans of what a kubelet does, and sends them. Module metrics/tracing has one: this module does not link
// OpenTelemetry. The methods are called once, while the kubelet is made.
type Tracer interface {
	// WrapSyncer returns a syncer that makes a span of each call. The calls of the container runtime are below it, by
	// their contexts.
	WrapSyncer(podworkers.Syncer) podworkers.Syncer
	// WrapHandler returns a handler that makes a span of each request to the kubelet's API.
	WrapHandler(http.Handler) http.Handler
	// CallStats returns what receives the calls of the container runtime.
	CallStats() stats.Handler
	// Run makes spans of the history of the agent until ctx ends, and then sends what is left. The agent waits for it.
	Run(ctx context.Context, store history.Store) error
}

// newTracer returns the tracer of the program, nil if the configuration has no tracing or the program no tracer.
func (k *Kubelet) newTracer(ctx context.Context, s *config.Settings) (Tracer, error) {
	if s.Tracing == nil || k.opts.Tracing == nil {
		return nil, nil
	}
	node, err := s.NodeName()
	if err != nil {
		return nil, err
	}
	tracer, err := k.opts.Tracing(ctx, TracingConfig{
		Endpoint: ptr.Deref(s.Tracing.Endpoint, ""), NodeName: node,
		SamplingRatePerMillion: ptr.Deref(s.Tracing.SamplingRatePerMillion, 0),
	})
	if err != nil {
		return nil, fmt.Errorf("kubelet: tracing: %w", err)
	}
	return tracer, nil
}

// wrapSyncer puts the tracer around the syncer of the options.
func wrapSyncer(opts *kubeletkit.Options, tracer Tracer) {
	before := opts.Override.PodSyncer
	opts.Override.PodSyncer = func(def podworkers.Syncer, parts kubeletkit.Parts) (podworkers.Syncer, error) {
		if before != nil {
			var err error
			if def, err = before(def, parts); err != nil {
				return nil, err
			}
		}
		return tracer.WrapSyncer(def), nil
	}
}
