package otlp_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/kubelet"
	"github.com/kubeletkit/kubeletkit/metrics/tracing/otlp"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake/criserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is an OTLP collector that keeps the spans.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	endpoint string

	mu        sync.Mutex
	spans     []*tracev1.Span
	resources map[string]string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &collector{endpoint: l.Addr().String(), resources: map[string]string{}}
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	collectorv1.RegisterTraceServiceServer(srv, c)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		assert.NoError(t, <-served)
	})
	return c
}

// Export implements the service.
func (c *collector) Export(_ context.Context,
	req *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.ResourceSpans {
		for _, a := range r.Resource.Attributes {
			c.resources[a.Key] = a.Value.GetStringValue()
		}
		for _, s := range r.ScopeSpans {
			c.spans = append(c.spans, s.Spans...)
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// named returns the spans of a name.
func (c *collector) named(name string) []*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.spans), func(s *tracev1.Span) bool { return s.Name != name })
}

func attribute(s *tracev1.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// runPod runs a kubelet with the setting tracing and one pod on a fake container runtime until the pod has started, and
// ends it.
func runPod(t *testing.T, tracing string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mk") // short, for the sockets in it
	require.NoError(t, err)
	defer func() {
		_ = exec.Command("umount", dir).Run() // an agent of root mounts it
		assert.NoError(t, os.RemoveAll(dir))
	}()
	rt := fake.New(fake.Options{Events: fake.Containerd()})
	defer rt.Close()
	l, err := net.Listen("unix", filepath.Join(dir, "cri.sock"))
	require.NoError(t, err)
	rctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- criserver.Serve(rctx, rt, l) }()
	defer func() {
		stop()
		assert.NoError(t, <-served)
	}()
	manifests, file := filepath.Join(dir, "manifests"), filepath.Join(dir, "config.yaml")
	require.NoError(t, os.Mkdir(manifests, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(manifests, "web.yaml"), []byte("apiVersion: v1\nkind: Pod\n"+
		"metadata: {name: web}\nspec:\n  containers:\n  - {name: c, image: i}\n"), 0o600))
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "apiVersion: kubelet.config.k8s.io/v1beta1\n"+
		"kind: KubeletConfiguration\npodLogsDir: %s/logs\nstaticPodPath: %s\nhealthzPort: 0\nenableServer: false\n"+
		"failCgroupV1: false\nfailSwapOn: false\ncgroupsPerQOS: false\nenforceNodeAllocatable: []\n"+
		"fileCheckFrequency: 20ms\n%s\n", dir, manifests, tracing),
		0o600))
	opts := kubelet.Options{Name: "traced", Tracing: otlp.New}
	config, err := kubelet.Load([]string{"--config", file, "--root-dir", dir, "--hostname-override=n", "--show=none",
		"--container-runtime-endpoint", "unix://" + filepath.Join(dir, "cri.sock"),
		"--device-plugins-dir", filepath.Join(dir, "plugins"), "--log-links-dir", filepath.Join(dir, "links")},
		opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	k, err := kubelet.New(ctx, config)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	assert.Eventually(t, func() bool {
		pods := k.Agent().Pods()
		return len(pods) == 1 && pods[0].Status.Phase == "Running"
	}, time.Minute, 10*time.Millisecond)
	cancel()
	assert.NoError(t, <-ended)
}

// The setting tracing sends spans of the syncs of a pod, with the calls of the container runtime below them, and of the
// life of the pod.
func TestTracingOfTheConfiguration(t *testing.T) {
	c := newCollector(t)
	runPod(t, fmt.Sprintf("tracing: {endpoint: %q, samplingRatePerMillion: 1000000}", c.endpoint))
	assert.Equal(t, "kubelet", c.resources["service.name"])
	assert.Equal(t, "n", c.resources["host.name"])
	syncs := c.named("syncPod")
	require.NotEmpty(t, syncs)
	assert.Equal(t, "web-n", attribute(syncs[0], "k8s.pod.name"))
	assert.Equal(t, "create", attribute(syncs[0], "k8s.pod.update_type"))
	for _, call := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		spans := c.named("runtime.v1.RuntimeService/" + call)
		if assert.Len(t, spans, 1, call) {
			assert.True(t, slices.ContainsFunc(syncs, func(s *tracev1.Span) bool {
				return string(s.SpanId) == string(spans[0].ParentSpanId)
			}), "%s is below a syncPod", call)
		}
	}
	assert.Len(t, c.named("pod"), 1, "the life of the pod")
}

// Without the setting nothing is sent, nor with a rate of 0.
func TestNothingIsTracedByDefault(t *testing.T) {
	for name, tracing := range map[string]string{"no setting": "", "no rate": "tracing: {endpoint: %q}"} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t)
			if tracing != "" {
				tracing = fmt.Sprintf(tracing, c.endpoint)
			}
			runPod(t, tracing)
			assert.Empty(t, c.spans)
		})
	}
}

// A request to the API has a span of its own, also if another trace leads to it.
func TestRequestsHaveSpans(t *testing.T) {
	c := newCollector(t)
	tracer, err := otlp.New(t.Context(), kubelet.TracingConfig{Endpoint: c.endpoint, NodeName: "n",
		SamplingRatePerMillion: 1_000_000})
	require.NoError(t, err)
	req := httptest.NewRequest(http.MethodGet, "/pods", nil)
	req.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	rec := httptest.NewRecorder()
	tracer.WrapHandler(http.NotFoundHandler()).ServeHTTP(rec, req)
	assert.Equal(t, http.StatusNotFound, rec.Code)
	store, err := history.New(history.Options{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, tracer.Run(ctx, store))
	require.Len(t, c.spans, 1)
	assert.Empty(t, c.spans[0].ParentSpanId)
	assert.Len(t, c.spans[0].Links, 1)
	assert.Equal(t, "/pods", attribute(c.spans[0], "url.path"))
}
