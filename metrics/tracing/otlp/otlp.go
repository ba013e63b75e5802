// Package otlp sends the spans of a kubelet to a collector, by OTLP over gRPC:
//
//	kubelet.Main(kubelet.Options{Tracing: otlp.New})
//
// Then tracing of a KubeletConfiguration acts as in kubelet. Without it there are no spans. The calls of the sync of a
// pod, of the container runtime, and requests to the kubelet's API have spans with kubelet's names; the spans of the
// lives of pods are those of package tracing. Each trace is recorded with the rate of the configuration, or as the
// request says that begins it.
package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/stats"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet"
	"github.com/kubeletkit/kubeletkit/metrics/tracing"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// scope is the instrumentation scope of the spans of calls. It is kubelet's.
const scope = "k8s.io/kubernetes/pkg/kubelet"

// shutdownTimeout bounds the sending of what is left when the agent stops.
const shutdownTimeout = 3 * time.Second

// perMillion is the rate at which each trace is recorded.
const perMillion = 1_000_000

// Tracer is a [kubelet.Tracer] that sends spans by OTLP. Make one with [New].
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	node     string
}

var _ kubelet.Tracer = (*Tracer)(nil)

// New returns the tracer of a configuration. It connects when there are spans, without TLS, as kubelet does.
func New(ctx context.Context, config kubelet.TracingConfig) (kubelet.Tracer, error) {
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithEndpoint(cmp.Or(config.Endpoint, "localhost:4317")))
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	sampler := sdktrace.NeverSample()
	if rate := config.SamplingRatePerMillion; rate > 0 {
		sampler = sdktrace.TraceIDRatioBased(float64(rate) / perMillion)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sampler)), sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(semconv.ServiceName("kubelet"),
			semconv.HostName(config.NodeName))),
	)
	return &Tracer{provider, provider.Tracer(scope), config.NodeName}, nil
}

// Run implements [kubelet.Tracer].
func (t *Tracer) Run(ctx context.Context, store history.Store) error {
	pods, err := tracing.New(store, t.provider, tracing.Options{NodeName: t.node})
	if err != nil {
		return err
	}
	err = pods.Run(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if failed := t.provider.Shutdown(ctx); failed != nil && !errors.Is(failed, context.DeadlineExceeded) {
		err = errors.Join(err, failed)
	}
	return err
}

// WrapHandler implements [kubelet.Tracer].
func (t *Tracer) WrapHandler(h http.Handler) http.Handler {
	return otelhttp.NewHandler(h, "kubelet", otelhttp.WithTracerProvider(t.provider),
		otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }))
}

// CallStats implements [kubelet.Tracer].
func (t *Tracer) CallStats() stats.Handler {
	return otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(t.provider),
		otelgrpc.WithPropagators(propagation.TraceContext{}))
}

// WrapSyncer implements [kubelet.Tracer].
func (t *Tracer) WrapSyncer(s podworkers.Syncer) podworkers.Syncer { return &syncer{s, t.tracer} }

// syncer makes a span of each call of a syncer.
type syncer struct {
	podworkers.Syncer
	tracer trace.Tracer
}

// start begins a span about a pod. end ends it.
func (s *syncer) start(ctx context.Context, name string, pod runtime.PodRef,
	attrs ...attribute.KeyValue) (_ context.Context, end func(error)) {
	attrs = append(attrs, semconv.K8SPodUID(string(pod.UID)), semconv.K8SPodName(pod.Name),
		semconv.K8SNamespaceName(pod.Namespace), attribute.String("k8s.pod", pod.Namespace+"/"+pod.Name))
	ctx, span := s.tracer.Start(ctx, name, trace.WithAttributes(attrs...))
	return ctx, func(err error) {
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// SyncPod implements [podworkers.Syncer].
func (s *syncer) SyncPod(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod,
	status *runtime.PodStatus) (result podworkers.Result, err error) {
	ctx, end := s.start(ctx, "syncPod", runtime.RefOf(pod), attribute.String("k8s.pod.update_type", typ.String()))
	defer func() { end(err) }()
	return s.Syncer.SyncPod(ctx, typ, pod, status)
}

// SyncTerminatingPod implements [podworkers.Syncer].
func (s *syncer) SyncTerminatingPod(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus,
	t podworkers.Termination) (err error) {
	ctx, end := s.start(ctx, "syncTerminatingPod", runtime.RefOf(pod))
	defer func() { end(err) }()
	return s.Syncer.SyncTerminatingPod(ctx, pod, status, t)
}

// SyncTerminatingOrphan implements [podworkers.Syncer].
func (s *syncer) SyncTerminatingOrphan(ctx context.Context, pod *runtime.Pod, status *runtime.PodStatus,
	gracePeriod *int64) (err error) {
	ctx, end := s.start(ctx, "syncTerminatingPod", pod.PodRef)
	defer func() { end(err) }()
	return s.Syncer.SyncTerminatingOrphan(ctx, pod, status, gracePeriod)
}

// SyncTerminatedPod implements [podworkers.Syncer].
func (s *syncer) SyncTerminatedPod(ctx context.Context, pod *v1.Pod, status *runtime.PodStatus) (err error) {
	ctx, end := s.start(ctx, "syncTerminatedPod", runtime.RefOf(pod))
	defer func() { end(err) }()
	return s.Syncer.SyncTerminatedPod(ctx, pod, status)
}
