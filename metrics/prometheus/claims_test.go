package prommetrics_test

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/node/dra"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestResourceClaims(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := prommetrics.NewResourceClaims(reg)
	require.NoError(t, err)
	for _, measured := range []runtime.Measurement{
		dra.Operation{Name: "PrepareResources", Took: time.Second, Err: errors.New("it fails")},
		dra.Call{Driver: "gpu.example.com", Method: "/v1.DRAPlugin/NodePrepareResources",
			Code: "OK", Took: time.Second},
		dra.Skip{Driver: "net.example.com", Operation: "NodePrepareResources"},
		dra.Skip{Driver: "net.example.com", Operation: "NodeUnprepareResources"},
		dra.InUse{ByDriver: map[string]int{"gone.example.com": 1}, All: 1},
		dra.InUse{ByDriver: map[string]int{"gpu.example.com": 2, "net.example.com": 1}, All: 2},
	} {
		m.Measure(measured)
	}
	families, err := reg.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, of := range f.GetMetric() {
			name := f.GetName()
			for _, label := range of.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] += of.GetGauge().GetValue() + of.GetCounter().GetValue() + of.GetHistogram().GetSampleSum()
		}
	}
	require.Equal(t, map[string]float64{
		"dra_resource_claims_in_use <any>": 2, "dra_resource_claims_in_use gpu.example.com": 2, "dra_resource_claims_in_use net.example.com": 1,
		"dra_node_prepare_skips_total net.example.com": 1, "dra_node_unprepare_skips_total net.example.com": 1,
		"dra_operations_duration_seconds true PrepareResources":                                      1,
		"dra_grpc_operations_duration_seconds gpu.example.com OK /v1.DRAPlugin/NodePrepareResources": 1,
	}, got)
	_, err = prommetrics.NewResourceClaims(reg)
	require.ErrorContains(t, err, "registering the metrics of the resource claims")
}
