package prommetrics_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
)

func TestCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		client, err := prommetrics.NewClientCertificate(reg)
		require.NoError(t, err)
		serving, err := prommetrics.NewServingCertificate(reg)
		require.NoError(t, err)
		_, err = prommetrics.NewServingCertificate(reg)
		require.ErrorContains(t, err, "serving certificate")
		values := func() map[string]float64 {
			families, err := reg.Gather()
			require.NoError(t, err)
			out := map[string]float64{}
			for _, f := range families {
				m := f.GetMetric()[0]
				out[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
			}
			return out
		}
		assert.Equal(t, map[string]float64{
			"kubelet_certificate_manager_client_ttl_seconds": math.Inf(1), "kubelet_certificate_manager_client_expiration_renew_errors": 0,
			"kubelet_certificate_manager_server_ttl_seconds": math.Inf(1), "kubelet_server_expiration_renew_errors": 0, "kubelet_certificate_manager_server_rotation_seconds": 0,
		}, values())
		client.CertificateExpires(time.Now().Add(time.Hour))
		client.CertificateRotated(time.Hour)
		client.RenewalFailed()
		serving.CertificateExpires(time.Now().Add(time.Minute))
		serving.CertificateRotated(2 * time.Hour)
		serving.RenewalFailed()
		serving.RenewalFailed()
		time.Sleep(2*time.Minute + 500*time.Millisecond)
		assert.Equal(t, map[string]float64{
			"kubelet_certificate_manager_client_ttl_seconds": 3479, "kubelet_certificate_manager_client_expiration_renew_errors": 1,
			"kubelet_certificate_manager_server_ttl_seconds": -60, "kubelet_server_expiration_renew_errors": 2, "kubelet_certificate_manager_server_rotation_seconds": 7200,
		}, values())
	})
}

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
		exec, pods := `{long_running="true",method="GET",path="exec",server_type="readwrite"}`, `{long_running="false",method="GET",path="pods",server_type="readonly"}`
		page := scrape(t, reg)
		for _, line := range []string{
			"kubelet_http_requests_total" + exec + " 1", "kubelet_http_requests_total" + pods + " 1", "kubelet_http_inflight_requests" + exec + " 1", "kubelet_http_inflight_requests" + pods + " 0",
			`kubelet_websocket_streaming_requests_total{subresource="exec"} 1`, "kubelet_http_requests_duration_seconds_count" + pods + " 1",
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
