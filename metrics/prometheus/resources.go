package prommetrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/placement/cpus"
	"github.com/kubeletkit/kubeletkit/node/placement/memory"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Resources are the metrics of what places containers on CPUs, memory and devices, with kubelet's names.
type Resources struct {
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
	count := func(name, help string) prometheus.Counter { return collector.Counter(collector.Kubelet(name, help)) }
	milliseconds := collector.HistogramOpts(collector.Kubelet("topology_manager_admission_duration_ms",
		"Duration in milliseconds to serve a pod admission request."),
		prometheus.ExponentialBuckets(.05, 2, 15))
	seconds := collector.HistogramOpts(collector.Kubelet("device_plugin_alloc_duration_seconds",
		"Duration in seconds to serve a device plugin Allocation request. Broken down by resource name."), nil)
	m := &Resources{
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
		m.memory, m.failedMemory,
		m.cpus, m.failedCPUs, m.shared, m.exclusive, m.perNode, m.aligned, m.failedAligned, m.admissions,
		m.failedAdmission, m.admissionTime,
		m.registrations, m.allocations,
	}); err != nil {
		return nil, err
	}
	return m, nil
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of packages topology, cpus, memory and
// devices.
func (m *Resources) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case memory.Pinned:
		counted(m.memory, m.failedMemory, v.Err)
	case cpus.Pinned:
		counted(m.cpus, m.failedCPUs, v.Err)
	case cpus.Aligned:
		m.alignment("container", string(v.Boundary), v.Err)
	case cpus.Counts:
		m.setCPUs(v)
	case topology.Admitted:
		counted(m.admissions, m.failedAdmission, v.Err)
		m.admissionTime.Observe(float64(v.Took) / float64(time.Millisecond))
	case topology.Aligned:
		m.alignment(string(v.Scope), "numa_node", v.Err)
	case devices.Registered:
		m.registrations.WithLabelValues(string(v.Resource)).Inc()
	case devices.Allocated:
		m.allocations.WithLabelValues(string(v.Resource)).Observe(v.Took.Seconds())
	}
}

func counted(count, failed prometheus.Counter, err error) {
	count.Inc()
	if err != nil {
		failed.Inc()
	}
}

func (m *Resources) setCPUs(v cpus.Counts) {
	m.aligned.WithLabelValues("container", string(cpus.BoundaryPhysicalCPU)) // kubelet's are there from then on
	m.failedAligned.WithLabelValues("container", string(cpus.BoundaryPhysicalCPU))
	m.aligned.WithLabelValues("container", string(cpus.BoundaryUncoreCache))
	m.shared.Set(float64(v.Shared * 1000))
	sum := 0
	for node, n := range v.Exclusive {
		m.perNode.WithLabelValues(strconv.Itoa(node)).Set(float64(n))
		sum += n
	}
	m.exclusive.Set(float64(sum))
}

// alignment counts a container or a pod, the scope, whose resources are within a boundary, or could not be.
func (m *Resources) alignment(scope, boundary string, err error) {
	count := m.aligned
	if err != nil {
		count = m.failedAligned
	}
	count.WithLabelValues(scope, boundary).Inc()
}
