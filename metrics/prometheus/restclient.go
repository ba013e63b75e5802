package prommetrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
)

// RESTClient has the metrics of the requests to an API server, under the names of client-go
// (k8s.io/component-base/metrics/prometheus/restclient). These are registered globally there; here
// a client has them by its transport:
//
//	config.Wrap(m.Wrap) // a rest.Config
type RESTClient struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewRESTClient registers the metrics of the clients of one agent. The error names the metric
// that the registry refused; then none is registered.
func NewRESTClient(reg prometheus.Registerer) (*RESTClient, error) {
	m := &RESTClient{
		requests: collector.Counters(prometheus.Opts{Name: "rest_client_requests_total",
			Help: "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host."}, "code", "method",
			"host"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rest_client_request_duration_seconds", Help: "[ALPHA] Request latency in seconds. Broken down by " +
				"verb, and host.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0},
		}, []string{"verb", "host"}),
	}
	if err := collector.Register(reg, "clients of the API server", collector.Group{m.requests,
		m.duration}); err != nil {
		return nil, err
	}
	return m, nil
}

// Wrap returns a transport that counts the requests through rt. The duration of a request is the
// time until its answer begins.
func (m *RESTClient) Wrap(rt http.RoundTripper) http.RoundTripper {
	return measured{rt, m}
}

type measured struct {
	http.RoundTripper
	metrics *RESTClient
}

// RoundTrip implements [http.RoundTripper].
func (t measured) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := t.RoundTripper.RoundTrip(req)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	t.metrics.requests.WithLabelValues(code, req.Method, req.URL.Host).Inc()
	t.metrics.duration.WithLabelValues(req.Method, req.URL.Host).Observe(time.Since(began).Seconds())
	return resp, err
}

// WrappedRoundTripper returns the transport below, for client-go.
func (t measured) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
