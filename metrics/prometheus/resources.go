package prommetrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
)

// Resources are the metrics of what places containers on CPUs, memory and devices, with kubelet's names. Its methods
// are for the options of packages below resources.
type Resources struct {
	requests, lists, gets, allocatables        *prometheus.CounterVec
	failedLists, failedGets, failedAllocatable *prometheus.CounterVec

	memory, failedMemory prometheus.Counter

	cpus, failedCPUs  prometheus.Counter
	shared, exclusive prometheus.Gauge
	perNode           *prometheus.GaugeVec

	aligned, failedAligned      *prometheus.CounterVec
	admissions, failedAdmission prometheus.Counter
	admissionTime               prometheus.Histogram

	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
}

// NewResources registers the metrics of one agent. The error names the metric that the registry refused; then none is
// registered.
func NewResources(reg prometheus.Registerer) (*Resources, error) {
	endpoint := func(name, help string) *prometheus.CounterVec {
		return collector.Counters(collector.Kubelet("pod_resources_endpoint_"+name,
			help+" Broken down by server api version."), "server_api_version")
	}
	count := func(name, help string) prometheus.Counter { return collector.Counter(collector.Kubelet(name, help)) }
	milliseconds := collector.HistogramOpts(collector.Kubelet("topology_manager_admission_duration_ms",
		"Duration in milliseconds to serve a pod admission request."),
		prometheus.ExponentialBuckets(.05, 2, 15))
	seconds := collector.HistogramOpts(collector.Kubelet("device_plugin_alloc_duration_seconds",
		"Duration in seconds to serve a device plugin Allocation request. Broken down by resource name."), nil)
	m := &Resources{
		requests: endpoint("requests_total", "Cumulative number of requests to the PodResource endpoint."),
		lists:    endpoint("requests_list", "Number of requests to the PodResource List endpoint."),
		gets:     endpoint("requests_get", "Number of requests to the PodResource Get endpoint."),
		allocatables: endpoint("requests_get_allocatable", "Number of requests to the PodResource "+
			"GetAllocatableResources endpoint."),
		failedLists: endpoint("errors_list", "Number of requests to the PodResource List endpoint which "+
			"returned error."),
		failedGets: endpoint("errors_get", "Number of requests to the PodResource Get endpoint which "+
			"returned error."),
		failedAllocatable: endpoint("errors_get_allocatable", "Number of requests to the PodResource "+
			"GetAllocatableResources endpoint which returned error."),

		memory: count("memory_manager_pinning_requests_total",
			"The number of memory pages allocations which required pinning."),
		failedMemory: count("memory_manager_pinning_errors_total", "The number of memory pages allocations which "+
			"required pinning that failed."),

		cpus: count("cpu_manager_pinning_requests_total",
			"The number of cpu core allocations which required pinning."),
		failedCPUs: count("cpu_manager_pinning_errors_total", "The number of cpu core allocations which required "+
			"pinning failed."),
		shared: collector.Gauge(collector.Kubelet("cpu_manager_shared_pool_size_millicores",
			"The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.")),
		exclusive: collector.Gauge(collector.Kubelet("cpu_manager_exclusive_cpu_allocation_count",
			"The total number of CPUs exclusively allocated to containers running on this node")),
		perNode: collector.Gauges(collector.Kubelet("cpu_manager_allocation_per_numa",
			"Number of CPUs allocated per NUMA node"), "numa_node"),

		aligned: collector.Counters(collector.Kubelet("container_aligned_compute_resources_count",
			"Cumulative number of aligned compute resources allocated to containers by alignment type."),
			"scope", "boundary"),
		failedAligned: collector.Counters(collector.Kubelet("container_aligned_compute_resources_failure_count",
			"Cumulative number of failures to allocate aligned compute resources to containers by alignment type."),
			"scope", "boundary"),
		admissions: count("topology_manager_admission_requests_total",
			"The number of admission requests where resources have to be aligned."),
		failedAdmission: count("topology_manager_admission_errors_total",
			"The number of admission request failures where resources could not be aligned."),
		admissionTime: prometheus.NewHistogram(milliseconds),

		registrations: collector.Counters(collector.Kubelet("device_plugin_registration_total",
			"Cumulative number of device plugin registrations. Broken down by resource name."), "resource_name"),
		allocations: prometheus.NewHistogramVec(seconds, []string{"resource_name"}),
	}
	for _, scope := range []string{"container", "pod"} { // kubelet's are there from the start
		m.aligned.WithLabelValues(scope, "numa_node")
		m.failedAligned.WithLabelValues(scope, "numa_node")
	}
	if err := collector.Register(reg, "resources", collector.Group{
		m.requests, m.lists, m.gets, m.allocatables, m.failedLists, m.failedGets, m.failedAllocatable,
		m.memory, m.failedMemory,
		m.cpus, m.failedCPUs, m.shared, m.exclusive, m.perNode, m.aligned, m.failedAligned, m.admissions,
		m.failedAdmission, m.admissionTime,
		m.registrations, m.allocations,
	}); err != nil {
		return nil, err
	}
	return m, nil
}

// PodResourcesRequested counts a request of the pod resources API.
func (m *Resources) PodResourcesRequested(version, method string, err error) {
	m.requests.WithLabelValues(version).Inc()
	if version != "v1" { // as kubelet
		return
	}
	count, failed := m.lists, m.failedLists
	switch method {
	case "Get":
		count, failed = m.gets, m.failedGets
	case "GetAllocatableResources":
		count, failed = m.allocatables, m.failedAllocatable
	}
	count.WithLabelValues(version).Inc()
	if err != nil {
		failed.WithLabelValues(version).Inc()
	}
}

// MemoryPinned counts an allocation of memory.
func (m *Resources) MemoryPinned(err error) { pinned(m.memory, m.failedMemory, err) }

// CPUsPinned counts an allocation of exclusive CPUs.
func (m *Resources) CPUsPinned(err error) { pinned(m.cpus, m.failedCPUs, err) }

func pinned(count, failed prometheus.Counter, err error) {
	count.Inc()
	if err != nil {
		failed.Inc()
	}
}

// CPUs sets the number of CPUs in the shared pool that are not reserved, and of exclusive ones by their memory nodes.
func (m *Resources) CPUs(shared int, exclusive map[int]int) {
	m.aligned.WithLabelValues("container", string(cpus.BoundaryPhysicalCPU)) // kubelet's are there from then on
	m.failedAligned.WithLabelValues("container", string(cpus.BoundaryPhysicalCPU))
	m.aligned.WithLabelValues("container", string(cpus.BoundaryUncoreCache))
	m.shared.Set(float64(shared * 1000))
	sum := 0
	for node, n := range exclusive {
		m.perNode.WithLabelValues(strconv.Itoa(node)).Set(float64(n))
		sum += n
	}
	m.exclusive.Set(float64(sum))
}

// TopologyAdmitted counts an admission for which resources were to be aligned, and measures it.
func (m *Resources) TopologyAdmitted(d time.Duration, err error) {
	pinned(m.admissions, m.failedAdmission, err)
	m.admissionTime.Observe(float64(d) / float64(time.Millisecond))
}

// Aligned counts a container or a pod, the scope, whose resources are within a boundary, such as numa_node, or could
// not be.
func (m *Resources) Aligned(scope, boundary string, err error) {
	count := m.aligned
	if err != nil {
		count = m.failedAligned
	}
	count.WithLabelValues(scope, boundary).Inc()
}

// PluginRegistered counts a registration of a device plugin.
func (m *Resources) PluginRegistered(resource string) {
	m.registrations.WithLabelValues(resource).Inc()
}

// PluginAllocated measures a call Allocate of a device plugin.
func (m *Resources) PluginAllocated(resource string, d time.Duration) {
	m.allocations.WithLabelValues(resource).Observe(d.Seconds())
}
