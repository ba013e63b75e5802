package prommetrics_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/memory"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
)

func TestResources(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := prommetrics.NewResources(reg)
	require.NoError(t, err)
	requests, err := prommetrics.NewPodResources(reg)
	require.NoError(t, err)
	failed := errors.New("no")
	for _, method := range []string{"List", "Get", "GetAllocatableResources"} {
		requests.Requested("v1", method, nil)
		requests.Requested("v1", method, failed)
	}
	requests.Requested("v1alpha1", "List", nil)
	pods, err := prommetrics.NewPodsAPI(reg)
	require.NoError(t, err)
	for method, n := range map[string]int{"ListPods": 1, "GetPod": 2, "WatchPods": 4} {
		for range n {
			pods.Requested("v1alpha1", method, "OK")
		}
	}
	for _, err := range []error{nil, nil, failed} {
		m.Measure(memory.Pinned{Err: err})
		m.Measure(cpus.Pinned{Err: err})
		m.Measure(cpus.Aligned{Boundary: cpus.BoundaryPhysicalCPU, Err: err})
		m.Measure(topology.Admitted{Took: time.Millisecond, Err: err})
		m.Measure(topology.Aligned{Scope: topology.ScopePod, Err: err})
	}
	m.Measure(cpus.Counts{Shared: 3, Exclusive: map[int]int{0: 2, 1: 1}})
	m.Measure(devices.Registered{Resource: "example.com/gpu"})
	m.Measure(devices.Allocated{Resource: "example.com/gpu", Took: time.Second})
	families, err := reg.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, of := range f.GetMetric() {
			name := f.GetName()
			if strings.HasPrefix(name, "kubelet_container_aligned") {
				for _, label := range of.GetLabel() {
					name += " " + label.GetValue()
				}
			}
			got[name] += of.GetCounter().GetValue() + of.GetGauge().GetValue() + of.GetHistogram().GetSampleSum()
		}
	}
	assert.Equal(t, map[string]float64{
		"kubelet_pod_resources_endpoint_requests_total": 7, "kubelet_pod_resources_endpoint_requests_list": 2, "kubelet_pod_resources_endpoint_errors_list": 1,
		"kubelet_pod_resources_endpoint_requests_get": 2, "kubelet_pod_resources_endpoint_errors_get": 1,
		"kubelet_pod_resources_endpoint_requests_get_allocatable": 2, "kubelet_pod_resources_endpoint_errors_get_allocatable": 1,
		"kubelet_pod_requests_total": 7, "kubelet_pod_requests_list_total": 1, "kubelet_pod_requests_get_total": 2, "kubelet_pod_requests_watch_total": 4,
		"kubelet_memory_manager_pinning_requests_total": 3, "kubelet_memory_manager_pinning_errors_total": 1,
		"kubelet_cpu_manager_pinning_requests_total": 3, "kubelet_cpu_manager_pinning_errors_total": 1, "kubelet_cpu_manager_shared_pool_size_millicores": 3000,
		"kubelet_cpu_manager_exclusive_cpu_allocation_count": 3, "kubelet_cpu_manager_allocation_per_numa": 3,
		"kubelet_container_aligned_compute_resources_count numa_node pod": 2, "kubelet_container_aligned_compute_resources_failure_count numa_node pod": 1,
		"kubelet_container_aligned_compute_resources_count physical_cpu container": 2, "kubelet_container_aligned_compute_resources_failure_count physical_cpu container": 1,
		"kubelet_container_aligned_compute_resources_count numa_node container": 0, "kubelet_container_aligned_compute_resources_failure_count numa_node container": 0,
		"kubelet_container_aligned_compute_resources_count uncore_cache container": 0,
		"kubelet_topology_manager_admission_requests_total":                        3, "kubelet_topology_manager_admission_errors_total": 1, "kubelet_topology_manager_admission_duration_ms": 3,
		"kubelet_device_plugin_registration_total": 1, "kubelet_device_plugin_alloc_duration_seconds": 1,
	}, got)
	_, err = prommetrics.NewResources(reg)
	assert.ErrorContains(t, err, "resources")
	_, err = prommetrics.NewPodResources(reg)
	assert.ErrorContains(t, err, "pod resources")
	_, err = prommetrics.NewPodsAPI(reg)
	assert.ErrorContains(t, err, "pods API")
}
