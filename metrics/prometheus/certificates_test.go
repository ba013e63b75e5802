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
