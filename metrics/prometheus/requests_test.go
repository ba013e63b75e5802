package prommetrics_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
)

func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m, err := prommetrics.NewRequests(reg)
		require.NoError(t, err)
		_, err = prommetrics.NewRequests(reg)
		require.ErrorContains(t, err, "requests")
		ended := m.RequestBegan("GET", "exec", false, true)
		m.RequestBegan("GET", "pods", true, false)()
		m.WebSocketSession("exec")
		time.Sleep(3 * time.Second)
		exec, pods := `{long_running="true",method="GET",path="exec",server_type="readwrite"}`,
			`{long_running="false",method="GET",path="pods",server_type="readonly"}`
		page := scrape(t, reg)
		for _, line := range []string{
			"kubelet_http_requests_total" + exec + " 1", "kubelet_http_requests_total" + pods + " 1",
			"kubelet_http_inflight_requests" + exec + " 1", "kubelet_http_inflight_requests" + pods + " 0",
			`kubelet_websocket_streaming_requests_total{subresource="exec"} 1`,
			"kubelet_http_requests_duration_seconds_count" + pods + " 1",
		} {
			assert.Contains(t, page, line+"\n")
		}
		assert.NotContains(t, page, "kubelet_http_requests_duration_seconds_count"+exec)
		ended()
		page = scrape(t, reg)
		assert.Contains(t, page, "kubelet_http_inflight_requests"+exec+" 0\n")
		assert.Contains(t, page, "kubelet_http_requests_duration_seconds_sum"+exec+" 3\n")
	})
}
