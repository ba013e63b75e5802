package prommetrics_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/server"
)

// checked is an agent with a health.
type checked struct {
	server.Agent
	err error
}

func (c *checked) Healthy() error { return c.err }

// The page is that of a kubelet 1.37 on which /healthz was requested.
func TestSLIs(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	slis, err := prommetrics.NewSLIs(reg)
	require.NoError(t, err)
	require.NoError(t, prommetrics.RegisterStartTime(reg))
	agent := &checked{}
	h := server.Handler(agent, server.Options{
		HealthChecked: slis.HealthChecked, SLIMetrics: prommetrics.Handler(reg, logr.Discard()),
		HealthChecks: []server.HealthCheck{{Name: "device-plugin", Run: func() error { return nil }}},
	})
	get := func(path string) string {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		return rec.Body.String()
	}
	start := regexp.MustCompile(`(?m)^process_start_time_seconds (.*)$`)
	value := start.FindStringSubmatch(get("/metrics/slis"))
	require.NotNil(t, value)
	assert.NotContains(t, get("/metrics/slis"), "kubernetes_healthcheck", "nothing was checked yet")

	get("/healthz")
	get("/healthz?exclude=log")
	get("/healthz/ping") // does not count
	agent.err = errors.New("the loop hangs")
	get("/healthz")
	server.Healthz(agent, server.Options{HealthChecked: slis.HealthChecked}).ServeHTTP(httptest.NewRecorder(),
		httptest.NewRequest(http.MethodGet, "/healthz", nil))
	page := get("/metrics/slis")
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
	assert.Equal(t, `# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.
# TYPE kubernetes_healthcheck gauge
kubernetes_healthcheck{name="device-plugin",type="healthz"} 1
kubernetes_healthcheck{name="log",type="healthz"} 1
kubernetes_healthcheck{name="ping",type="healthz"} 1
kubernetes_healthcheck{name="syncloop",type="healthz"} 0
# HELP kubernetes_healthchecks_total [STABLE] This metric records the results of all healthcheck.
# TYPE kubernetes_healthchecks_total counter
kubernetes_healthchecks_total{name="device-plugin",status="success",type="healthz"} 3
kubernetes_healthchecks_total{name="log",status="success",type="healthz"} 3
kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 4
kubernetes_healthchecks_total{name="syncloop",status="error",type="healthz"} 2
kubernetes_healthchecks_total{name="syncloop",status="success",type="healthz"} 2
# HELP process_start_time_seconds [ALPHA] Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds N
`, start.ReplaceAllString(page, "process_start_time_seconds N"))
	began, err := strconv.ParseFloat(value[1], 64)
	require.NoError(t, err)
	assert.Less(t, time.Since(time.Unix(int64(began), 0)), time.Hour)

	_, err = prommetrics.NewSLIs(reg)
	assert.ErrorAs(t, err, &prometheus.AlreadyRegisteredError{})
}
