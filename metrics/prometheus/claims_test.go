package prommetrics_test

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
)

func TestResourceClaims(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := prommetrics.NewResourceClaims(reg)
	require.NoError(t, err)
	m.Operation("PrepareResources", time.Second, errors.New("it fails"))
	m.Call("gpu.example.com", "/v1.DRAPlugin/NodePrepareResources", "OK", time.Second)
	m.InUse(map[string]int{"gone.example.com": 1}, 1)
	m.InUse(map[string]int{"gpu.example.com": 2, "net.example.com": 1}, 2)
	families, err := reg.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, of := range f.GetMetric() {
			name := f.GetName()
			for _, label := range of.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] += of.GetGauge().GetValue() + of.GetHistogram().GetSampleSum()
		}
	}
	require.Equal(t, map[string]float64{
		"dra_resource_claims_in_use <any>": 2, "dra_resource_claims_in_use gpu.example.com": 2, "dra_resource_claims_in_use net.example.com": 1,
		"dra_operations_duration_seconds true PrepareResources":                                      1,
		"dra_grpc_operations_duration_seconds gpu.example.com OK /v1.DRAPlugin/NodePrepareResources": 1,
	}, got)
	_, err = prommetrics.NewResourceClaims(reg)
	require.ErrorContains(t, err, "registering the metrics of the resource claims")
}
