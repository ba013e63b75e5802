package main

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMetricsAreKubelets(t *testing.T) {
	m, err := newMetrics()
	require.NoError(t, err)
	_, err = newMetrics()
	require.NoError(t, err, "of another agent in the same process")
	rec := httptest.NewRecorder()
	m.handler.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	for _, name := range []string{"go_goroutines ", "go_sched_goroutines_goroutines ", "process_cpu_seconds_total ", "kubelet_pleg_relist_duration_seconds_count "} {
		assert.Contains(t, rec.Body.String(), "\n"+name)
	}
}
