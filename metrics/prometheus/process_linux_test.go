package prommetrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
)

// The metrics of the process have the names, types, help and values that Prometheus' client library has.
func TestProcess(t *testing.T) {
	ours, theirs := prometheus.NewPedanticRegistry(), prometheus.NewPedanticRegistry()
	require.NoError(t, prommetrics.RegisterProcess(ours))
	require.NoError(t, theirs.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	want, err := theirs.Gather()
	require.NoError(t, err)
	got, err := ours.Gather()
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for i, w := range want {
		g := got[i]
		assert.Equal(t, w.GetName(), g.GetName())
		assert.Equal(t, w.GetHelp(), g.GetHelp(), w.GetName())
		assert.Equal(t, w.GetType(), g.GetType(), w.GetName())
		value := func(m interface{ GetValue() float64 }) float64 { return m.GetValue() }
		a, b := value(w.GetMetric()[0].GetGauge()), value(g.GetMetric()[0].GetGauge())
		if w.GetMetric()[0].GetGauge() == nil {
			a, b = value(w.GetMetric()[0].GetCounter()), value(g.GetMetric()[0].GetCounter())
		}
		switch w.GetName() {
		case "process_cpu_seconds_total": // theirs in steps of 10 ms
			assert.InDelta(t, a, b, 0.1, w.GetName())
		case "process_resident_memory_bytes", "process_virtual_memory_bytes", "process_network_receive_bytes_total", "process_network_transmit_bytes_total":
			assert.InEpsilon(t, a+1, b+1, 0.2, w.GetName())
		default:
			assert.InDelta(t, a, b, 0, w.GetName())
		}
	}
	assert.ErrorAs(t, prommetrics.RegisterProcess(ours), &prometheus.AlreadyRegisteredError{})
}
