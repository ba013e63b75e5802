package prommetrics_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/metrics/prometheus/crimetrics"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
)

// discard is a client that does nothing with the answer.
type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// BenchmarkHandler encodes the page of an agent: its parts, Go's runtime and the process.
func BenchmarkHandler(b *testing.B) {
	reg := prometheus.NewRegistry()
	require.NoError(b, prommetrics.RegisterProcess(reg))
	require.NoError(b,
		reg.Register(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll))))
	_, err := prommetrics.ForAgent(reg, reg)
	require.NoError(b, err)
	calls, err := crimetrics.New(reg)
	require.NoError(b, err)
	for _, method := range []string{"Version", "Status", "RuntimeConfig", "RunPodSandbox", "PodSandboxStatus",
		"ListPodSandbox", "CreateContainer", "StartContainer", "ContainerStatus", "ListContainers", "ImageStatus"} {
		calls.Measure(cri.Call{Method: method, Took: time.Millisecond})
	}
	h := prommetrics.Handler(reg, logr.Discard())
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(discard{http.Header{}}, req)
	}
}
