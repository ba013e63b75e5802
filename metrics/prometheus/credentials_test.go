package prommetrics_test

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/node/images/credentials"
)

func TestCredentialProviders(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := prommetrics.NewCredentialProviders(reg, "sha256:1")
	require.NoError(t, err)
	_, err = prommetrics.NewCredentialProviders(reg, "sha256:1")
	require.ErrorAs(t, err, &prometheus.AlreadyRegisteredError{})
	m.Measure(credentials.PluginExecution{Provider: "ecr", Took: 2 * time.Second})
	m.Measure(credentials.PluginExecution{Provider: "ecr", Took: time.Second, Err: errors.New("exit status 1")})
	text := scrape(t, reg)
	assert.Equal(t, []string{`kubelet_credential_provider_config_info{hash="sha256:1"} 1`},
		lines(text, "kubelet_credential_provider_config_info"))
	assert.Equal(t, []string{`kubelet_credential_provider_plugin_errors_total{plugin_name="ecr"} 1`},
		lines(text, "kubelet_credential_provider_plugin_errors_total"))
	assert.Equal(t, []string{`kubelet_credential_provider_plugin_duration_sum{plugin_name="ecr"} 3`},
		lines(text, "kubelet_credential_provider_plugin_duration_sum"))
}
