package prommetrics_test

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
)

func TestResources(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := prommetrics.NewResources(reg)
	require.NoError(t, err)
	failed := errors.New("no")
	for _, method := range []string{"List", "Get", "GetAllocatableResources"} {
		m.PodResourcesRequested("v1", method, nil)
		m.PodResourcesRequested("v1", method, failed)
	}
	m.PodResourcesRequested("v1alpha1", "List", nil)
	for _, err := range []error{nil, nil, failed} {
		m.MemoryPinned(err)
		m.CPUsPinned(err)
		m.TopologyAdmitted(time.Millisecond, err)
		m.Aligned("pod", "numa_node", err)
	}
	m.CPUs(3, map[int]int{0: 2, 1: 1})
	m.PluginRegistered("example.com/gpu")
	m.PluginAllocated("example.com/gpu", time.Second)
	families, err := reg.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, of := range f.GetMetric() {
			got[f.GetName()] += of.GetCounter().GetValue() + of.GetGauge().GetValue() + of.GetHistogram().GetSampleSum()
		}
	}
	assert.Equal(t, map[string]float64{
		"kubelet_pod_resources_endpoint_requests_total": 7, "kubelet_pod_resources_endpoint_requests_list": 2, "kubelet_pod_resources_endpoint_errors_list": 1,
		"kubelet_pod_resources_endpoint_requests_get": 2, "kubelet_pod_resources_endpoint_errors_get": 1,
		"kubelet_pod_resources_endpoint_requests_get_allocatable": 2, "kubelet_pod_resources_endpoint_errors_get_allocatable": 1,
		"kubelet_memory_manager_pinning_requests_total": 3, "kubelet_memory_manager_pinning_errors_total": 1,
		"kubelet_cpu_manager_pinning_requests_total": 3, "kubelet_cpu_manager_pinning_errors_total": 1, "kubelet_cpu_manager_shared_pool_size_millicores": 3000,
		"kubelet_cpu_manager_exclusive_cpu_allocation_count": 3, "kubelet_cpu_manager_allocation_per_numa": 3,
		"kubelet_container_aligned_compute_resources_count": 2, "kubelet_container_aligned_compute_resources_failure_count": 1,
		"kubelet_topology_manager_admission_requests_total": 3, "kubelet_topology_manager_admission_errors_total": 1, "kubelet_topology_manager_admission_duration_ms": 3,
		"kubelet_device_plugin_registration_total": 1, "kubelet_device_plugin_alloc_duration_seconds": 1,
	}, got)
	_, err = prommetrics.NewResources(reg)
	assert.ErrorContains(t, err, "resources")
}
