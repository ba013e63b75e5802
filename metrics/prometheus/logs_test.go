package prommetrics_test

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/node/logs"
)

func TestLogs(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := prommetrics.NewLogs(reg)
	require.NoError(t, err)
	failed := errors.New("no answer")
	for _, err := range []error{nil, nil, nil, failed, failed} {
		m.Measure(logs.Rotated{Err: err})
	}
	m.Measure(logs.Compressed{})
	m.Measure(logs.Compressed{Err: failed})
	families, err := reg.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	assert.Equal(t, map[string]float64{
		"kubeletkit_logs_rotations_total": 3, "kubeletkit_logs_failed_rotations_total": 2, "kubeletkit_logs_failed_compressions_total": 1,
	}, got)
	_, err = prommetrics.NewLogs(reg)
	assert.ErrorContains(t, err, "logs")
}
