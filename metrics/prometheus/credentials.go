package prommetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/images/credentials"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// CredentialProviders measures credential provider plugins under kubelet's names.
type CredentialProviders struct {
	duration *prometheus.HistogramVec
	errors   *prometheus.CounterVec
}

// NewCredentialProviders registers the metrics of one agent's credential providers, with the hash of their
// configuration. The error names the metric that the registry refused; then none is registered.
func NewCredentialProviders(reg prometheus.Registerer, hash string) (*CredentialProviders, error) {
	info := collector.Gauges(collector.Kubelet("credential_provider_config_info", "Information about the last "+
		"applied credential provider configuration with hash as label"), "hash")
	info.WithLabelValues(hash).Set(1)
	m := &CredentialProviders{
		duration: prometheus.NewHistogramVec(
			collector.HistogramOpts(collector.Kubelet("credential_provider_plugin_duration",
				"Duration of execution in seconds for credential provider plugin"), nil), []string{"plugin_name"}),
		errors: collector.Counters(collector.Kubelet("credential_provider_plugin_errors_total",
			"Number of errors from credential provider plugin"), "plugin_name"),
	}
	if err := collector.Register(reg, "credential providers", collector.Group{info, m.duration, m.errors}); err != nil {
		return nil, err
	}
	return m, nil
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of package credentials.
func (m *CredentialProviders) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case credentials.PluginExecution:
		m.duration.WithLabelValues(v.Provider).Observe(v.Took.Seconds())
		if v.Err != nil {
			m.errors.WithLabelValues(v.Provider).Inc()
		}
	}
}
