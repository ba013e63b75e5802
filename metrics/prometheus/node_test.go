package prommetrics_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
)

func TestRegisterNode(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, prommetrics.RegisterNode(reg, "edge-7", "v1.36.0-kubeletkit"))
	text := scrape(t, reg)
	assert.Equal(t, []string{`kubelet_node_name{node="edge-7"} 1`}, lines(text, "kubelet_node_name"))
	build := strings.Join(lines(text, "kubernetes_build_info"), "")
	for _, want := range []string{`git_version="v1.36.0-kubeletkit"`, `major="1"`, `minor="36"`, `compiler="gc"`} {
		assert.Contains(t, build, want)
	}
	require.ErrorAs(t, prommetrics.RegisterNode(reg, "edge-7", ""), &prometheus.AlreadyRegisteredError{})
	reg = prometheus.NewPedanticRegistry()
	require.NoError(t, prommetrics.RegisterNode(reg, "edge-7", "devel"))
	assert.Contains(t, scrape(t, reg), `major=""`)
}

// answers is a transport that answers with a status, or with an error if that is 0.
type answers int

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	if a == 0 {
		return nil, errors.New("no connection")
	}
	return &http.Response{StatusCode: int(a), Body: http.NoBody}, nil
}

func TestRESTClient(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := prommetrics.NewRESTClient(reg)
	require.NoError(t, err)
	for _, a := range []answers{200, 404, 0} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://192.0.2.1:6443/api", nil)
		require.NoError(t, err)
		resp, err := m.Wrap(a).RoundTrip(req)
		assert.Equal(t, a == 0, err != nil)
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
	}
	text := scrape(t, reg)
	assert.Equal(t, []string{
		`rest_client_requests_total{code="200",host="192.0.2.1:6443",method="GET"} 1`,
		`rest_client_requests_total{code="404",host="192.0.2.1:6443",method="GET"} 1`,
		`rest_client_requests_total{code="<error>",host="192.0.2.1:6443",method="GET"} 1`,
	}, lines(text, "rest_client_requests_total"))
	assert.Equal(t, []string{`rest_client_request_duration_seconds_count{host="192.0.2.1:6443",verb="GET"} 3`},
		lines(text, "rest_client_request_duration_seconds_count"))
}

// broken is a collector with an error beside what it has.
type broken struct{ prometheus.Collector }

func (b broken) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "", nil, nil), errors.New("it is"))
	b.Collector.Collect(ch)
}

func TestHandler(t *testing.T) {
	reg := prometheus.NewRegistry()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "works", Help: "It does."})
	require.NoError(t, reg.Register(broken{gauge}))
	rec := httptest.NewRecorder()
	prommetrics.Handler(reg, logr.Discard()).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	assert.Equal(t, http.StatusOK, rec.Code)
	assert.Equal(t, "# HELP works It does.\n# TYPE works gauge\nworks 0\n", rec.Body.String())
	assert.Contains(t, rec.Header().Get("Content-Type"), "text/plain; version=0.0.4")
}
