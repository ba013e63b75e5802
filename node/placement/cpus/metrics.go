package cpus

// Boundary is what exclusive CPUs keep to.
type Boundary string

// The boundaries. They are the labels of kubelet's metrics.
const (
	// BoundaryPhysicalCPU is that of whole cores, with the option full-pcpus-only.
	BoundaryPhysicalCPU Boundary = "physical_cpu"
	// BoundaryUncoreCache is that of one cache of the last level. No container has to keep to it.
	BoundaryUncoreCache Boundary = "uncore_cache"
)

// Pinned is the measurement of an assignment of exclusive CPUs: kubelet_cpu_manager_pinning_requests_total and
// kubelet_cpu_manager_pinning_errors_total.
type Pinned struct {
	// Err is why no CPUs were assigned, or nil.
	Err error
}

// Aligned is the measurement of a boundary that assigned CPUs keep to, or that the policy requires of an assignment
// that has failed: kubelet_container_aligned_compute_resources_count and
// kubelet_container_aligned_compute_resources_failure_count. It follows the [Pinned] of the assignment.
type Aligned struct {
	Boundary Boundary
	// Err is the error of the assignment, or nil.
	Err error
}

// Counts is the measurement of the numbers of CPUs when they have changed:
// kubelet_cpu_manager_shared_pool_size_millicores, kubelet_cpu_manager_exclusive_cpu_allocation_count and
// kubelet_cpu_manager_allocation_per_numa.
type Counts struct {
	// Shared is the number of CPUs of the shared pool that are not reserved.
	Shared int
	// Exclusive has the numbers of exclusive CPUs by memory node, also of nodes without one. It is read-only.
	Exclusive map[int]int
}

// IsMeasurement implements [runtime.Measurement].
func (Pinned) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Aligned) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Counts) IsMeasurement() {}
