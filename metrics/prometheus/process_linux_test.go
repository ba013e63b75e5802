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
	before, err := theirs.Gather()
	require.NoError(t, err)
	got, err := ours.Gather()
	require.NoError(t, err)
	after, err := theirs.Gather()
	require.NoError(t, err)
	require.Len(t, got, len(before))
	for i, g := range got {
		name := g.GetName()
		assert.Equal(t, before[i].GetName(), name)
		assert.Equal(t, before[i].GetHelp(), g.GetHelp(), name)
		assert.Equal(t, before[i].GetType(), g.GetType(), name)
		gauge, counter := g.GetMetric()[0].GetGauge().GetValue(), g.GetMetric()[0].GetCounter().GetValue()
		switch name {
		case "process_cpu_seconds_total", "process_network_receive_bytes_total", "process_network_transmit_bytes_total":
			const step = 0.02 // theirs counts CPU time of the user and of the system in steps of 10 ms
			assert.GreaterOrEqual(t, counter+step, before[i].GetMetric()[0].GetCounter().GetValue(), name)
			assert.LessOrEqual(t, counter-step, after[i].GetMetric()[0].GetCounter().GetValue(), name)
		case "process_resident_memory_bytes", "process_virtual_memory_bytes":
			assert.InEpsilon(t, before[i].GetMetric()[0].GetGauge().GetValue(), gauge, 0.2, name)
		default:
			assert.InDelta(t, before[i].GetMetric()[0].GetGauge().GetValue(), gauge, 0, name)
		}
	}
	assert.ErrorAs(t, prommetrics.RegisterProcess(ours), &prometheus.AlreadyRegisteredError{})
}
