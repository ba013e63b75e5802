package prommetrics_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
)

func TestPlugins(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	registered, all := func() []string { return []string{"/a"} }, func() []string { return []string{"/a", "/b"} }
	require.NoError(t, prommetrics.RegisterPlugins(reg, registered, all))
	rec := httptest.NewRecorder()
	prommetrics.Handler(reg, logr.Discard()).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	assert.Equal(t, `# HELP plugin_manager_total_plugins [ALPHA] Number of plugins in Plugin Manager
# TYPE plugin_manager_total_plugins gauge
plugin_manager_total_plugins{socket_path="/a",state="actual_state_of_world"} 1
plugin_manager_total_plugins{socket_path="/a",state="desired_state_of_world"} 1
plugin_manager_total_plugins{socket_path="/b",state="desired_state_of_world"} 1
`, rec.Body.String())
	require.ErrorContains(t, prommetrics.RegisterPlugins(reg, registered, all), "plugins")
}
