package kubelet

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// All pages of metrics can be parsed, and have nothing that promlint finds but names of kubelet, of
// cAdvisor and of Go's runtime.
func TestPagesOfMetrics(t *testing.T) {
	b := newBench(t)
	port := freePort(t)
	b.start(withPort(t, port)...)
	b.put("web", "i")
	b.await("web-n 1/1 Running", "pods")
	others := kubeletMetrics(t)
	others["container_fs_inodes_total"] = true
	for _, path := range []string{"/metrics", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes",
		"/metrics/slis"} {
		code, page := ask(t, port, http.MethodGet, path, "")
		assert.Equal(t, http.StatusOK, code, path)
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(page))
		require.NoError(t, err, path)
		assert.NotEmpty(t, families, path)
		if path == "/metrics/probes" {
			assert.Len(t, families, 1, "the start of the process, and no probes")
		}
		problems, err := promlint.New(strings.NewReader(page)).Lint()
		require.NoError(t, err, path)
		for _, p := range problems {
			if !others[p.Metric] && !strings.HasPrefix(p.Metric, "go_") {
				t.Errorf("%s: %s: %s", path, p.Metric, p.Text)
			}
		}
	}
}

func TestMetricsAreKubelets(t *testing.T) {
	m, err := newMetrics(logr.Discard())
	require.NoError(t, err)
	_, err = newMetrics(logr.Discard())
	require.NoError(t, err, "of another agent in the same process")
	rec := httptest.NewRecorder()
	m.handler.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	for _, name := range []string{"go_goroutines ", "go_sched_goroutines_goroutines ", "process_cpu_seconds_total ",
		"kubelet_pleg_relist_duration_seconds_count ", "kubelet_started_pods_total "} {
		assert.Contains(t, rec.Body.String(), "\n"+name)
	}

	// Probes have series for each container, and are apart.
	web := runtime.PodRef{Namespace: "default", Name: "web", UID: "u"}
	m.agent(prober.Attempt{Probe: prober.ProbeRef{Pod: web, Container: "c", Kind: runtime.LivenessProbe},
		Outcome: prober.Success, Took: time.Second})
	for handler, has := range map[*http.Handler]bool{&m.handler: false, &m.probes: true} {
		rec := httptest.NewRecorder()
		(*handler).ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
		assert.Equal(t, has, strings.Contains(rec.Body.String(), `prober_probe_total{container="c"`))
	}
}

// The end of a certificate is that of the one that is used by now.
func TestCertificateEnds(t *testing.T) {
	m, err := newMetrics(logr.Discard())
	require.NoError(t, err)
	client, err := prommetrics.NewClientCertificate(m.registry)
	require.NoError(t, err)
	assert.Empty(t, m.ends.list())
	of := m.ends.of("client", client)
	serving := m.ends.of("serving", client)
	serving.CertificateExpires(time.Unix(3, 0))
	of.CertificateExpires(time.Unix(1, 0))
	of.CertificateExpires(time.Unix(2, 0))
	assert.Equal(t, []control.Certificate{{Name: "client", Expires: time.Unix(2, 0)},
		{Name: "serving", Expires: time.Unix(3, 0)}}, m.ends.list())
}
