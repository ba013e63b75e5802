package prommetrics_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/node/shutdown"
)

func TestShutdown(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := prommetrics.NewShutdown(reg)
	require.NoError(t, err)
	_, err = prommetrics.NewShutdown(reg)
	require.ErrorAs(t, err, &prometheus.AlreadyRegisteredError{})
	values := func() []string {
		text := scrape(t, reg)
		return append(lines(text, "kubelet_graceful_shutdown_start_time_seconds"),
			lines(text, "kubelet_graceful_shutdown_end_time_seconds")...)
	}
	assert.Equal(t, []string{"kubelet_graceful_shutdown_start_time_seconds 0",
		"kubelet_graceful_shutdown_end_time_seconds 0"}, values())
	m.Measure(shutdown.Shutdown{Start: time.Unix(1000, 5)})
	assert.Equal(t, []string{"kubelet_graceful_shutdown_start_time_seconds 1000",
		"kubelet_graceful_shutdown_end_time_seconds 0"}, values())
	m.Measure(shutdown.Shutdown{Start: time.Unix(1000, 5), End: time.Unix(1030, 7)})
	assert.Equal(t, []string{"kubelet_graceful_shutdown_start_time_seconds 1000",
		"kubelet_graceful_shutdown_end_time_seconds 1030"}, values())
}
