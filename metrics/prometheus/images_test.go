package prommetrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/node/images/records"
)

func TestRecordsOfPulls(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := prommetrics.NewImages(reg)
	require.NoError(t, err)
	for _, d := range []records.Decision{records.AllowedByPolicy, records.AllowedByRecord, records.AllowedByRecord,
		records.MustPull, records.Undecided} {
		m.Measure(images.Verified{Decision: d})
	}
	m.Measure(images.Recorded{Intents: 2, Records: 30})
	assert.Equal(t, []string{
		`kubelet_imagemanager_image_mustpull_checks_total{result="credentialPolicyAllowed"} 1`,
		`kubelet_imagemanager_image_mustpull_checks_total{result="credentialRecordFound"} 2`,
		`kubelet_imagemanager_image_mustpull_checks_total{result="error"} 1`,
		`kubelet_imagemanager_image_mustpull_checks_total{result="mustAuthenticate"} 1`,
		`kubelet_imagemanager_ondisk_pulledrecords 30`, `kubelet_imagemanager_ondisk_pullintents 2`,
	}, lines(scrape(t, reg), "kubelet_imagemanager"))
}
