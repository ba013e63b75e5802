package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMetricsAreKubelets(t *testing.T) {
	m, err := newMetrics(logr.Discard())
	require.NoError(t, err)
	_, err = newMetrics(logr.Discard())
	require.NoError(t, err, "of another agent in the same process")
	rec := httptest.NewRecorder()
	m.handler.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	for _, name := range []string{"go_goroutines ", "go_sched_goroutines_goroutines ", "process_cpu_seconds_total ", "kubelet_pleg_relist_duration_seconds_count ", "kubelet_started_pods_total "} {
		assert.Contains(t, rec.Body.String(), "\n"+name)
	}

	// Probes have series for each container, and are apart.
	web := runtime.PodRef{Namespace: "default", Name: "web", UID: "u"}
	m.parts.Prober.Attempted(prober.ProbeRef{Pod: web, Container: "c", Kind: runtime.LivenessProbe}, prober.Success, time.Second)
	for handler, has := range map[*http.Handler]bool{&m.handler: false, &m.probes: true} {
		rec := httptest.NewRecorder()
		(*handler).ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
		assert.Equal(t, has, strings.Contains(rec.Body.String(), `prober_probe_total{container="c"`))
	}
}
