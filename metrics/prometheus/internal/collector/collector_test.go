package collector_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// names returns the names of the metrics on the page of the registry.
func names(t *testing.T, reg prometheus.Gatherer) (names []string) {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return names
}

// A group is registered whole or not at all, and the error says of which part and what to do.
func TestRegister(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	one := func() prometheus.Collector { return collector.Gauge(collector.Kubelet("one", "One.")) }
	two := collector.Counter(collector.Own("part", "two_total", "Two."))
	require.NoError(t, collector.Register(reg, "part", collector.Group{one()}))

	require.ErrorAs(t, collector.Register(reg, "part", collector.Group{one()}), &prometheus.AlreadyRegisteredError{})
	err := collector.Register(reg, "other part", collector.Group{two, one()})
	require.ErrorContains(t, err, "registering the metrics of the other part: ")
	require.ErrorContains(t, err, "kubelet_one")
	require.ErrorContains(t, err, "each needs a registry, or a label, of its own")
	assert.Equal(t, []string{"kubelet_one"}, names(t, reg))

	require.NoError(t, collector.Register(reg, "other part", collector.Group{two}))
	assert.Equal(t, []string{"kubelet_one", "kubeletkit_part_two_total"}, names(t, reg))
}

// Names, help, labels and buckets are those of the options.
func TestOptions(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	counters := collector.Counters(collector.Kubelet("calls_total", "Calls."), "method")
	gauges := collector.Gauges(collector.Own("part", "pods", "Pods."), "phase")
	plain := prometheus.NewHistogram(collector.HistogramOpts(collector.Kubelet("plain_seconds", "Plain."), nil))
	own := prometheus.NewHistogram(collector.HistogramOpts(collector.Own("part", "own_seconds", "Own."),
		[]float64{1, 2}))
	require.NoError(t, collector.Register(reg, "part", collector.Group{counters, gauges, plain, own}))
	counters.WithLabelValues("GET").Inc()
	gauges.WithLabelValues("Running").Set(3)

	families, err := reg.Gather()
	require.NoError(t, err)
	help, buckets := map[string]string{}, map[string]int{}
	for _, f := range families {
		help[f.GetName()] = f.GetHelp()
		buckets[f.GetName()] = len(f.GetMetric()[0].GetHistogram().GetBucket())
	}
	assert.Equal(t, map[string]string{
		"kubelet_calls_total": "[ALPHA] Calls.", "kubelet_plain_seconds": "[ALPHA] Plain.",
		"kubeletkit_part_pods": "Pods.", "kubeletkit_part_own_seconds": "Own.",
	}, help)
	assert.Equal(t, map[string]int{
		"kubelet_calls_total": 0, "kubelet_plain_seconds": len(prometheus.DefBuckets), "kubeletkit_part_pods": 0, "kubeletkit_part_own_seconds": 2,
	}, buckets)
}
