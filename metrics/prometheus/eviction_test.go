package prommetrics_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/node/eviction"
)

func TestEviction(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := prommetrics.NewEviction(reg)
	require.NoError(t, err)
	m.Measure(eviction.Eviction{Signal: eviction.MemoryAvailable, Age: time.Millisecond})
	m.Measure(eviction.Eviction{Signal: eviction.MemoryAvailable, Age: time.Second})
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Len(t, families, 2)
	assert.Equal(t, "kubelet_eviction_stats_age_seconds", families[0].GetName())
	assert.EqualValues(t, 2, families[0].GetMetric()[0].GetHistogram().GetSampleCount())
	assert.Equal(t, "kubelet_evictions", families[1].GetName())
	assert.InDelta(t, 2, families[1].GetMetric()[0].GetCounter().GetValue(), 0)
	_, err = prommetrics.NewEviction(reg)
	assert.ErrorContains(t, err, "evictions")
}
