package runtime

import (
	"context"
	"time"

	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// UsageReporter is an optional interface of a [Runtime], see [Optional]. Without it, the
// usage of pods is read from cgroups, where they can be found. Package stats reads it.
type UsageReporter interface {
	// ListUsage returns the usage of the sandboxes that are ready and of the containers that
	// run, in any order. Readers do not trust the numbers; they join them by ID with what the
	// agent knows of its pods. The error wraps [errors.ErrUnsupported] if the runtime has no
	// such figures.
	ListUsage(ctx context.Context) (Usage, error)
}

// Usage is the usage of the pods of a runtime.
type Usage struct {
	// Sandboxes have the usage of whole pods. The list is empty if the runtime reports only
	// that of containers.
	Sandboxes []SandboxUsage
	// Containers are those of all sandboxes.
	Containers []ContainerUsage
}

// SandboxUsage is the usage of a pod. The units are documented with the types, which are
// those of the summary API. A nil field is unknown.
type SandboxUsage struct {
	// ID of the sandbox.
	ID      string
	CPU     *statsv1alpha1.CPUStats
	Memory  *statsv1alpha1.MemoryStats
	IO      *statsv1alpha1.IOStats
	Network *statsv1alpha1.NetworkStats
	// Processes is the number of processes.
	Processes *uint64
}

// ContainerUsage is the usage of a container. A nil field is unknown.
type ContainerUsage struct {
	// ID of the container, without the type of the runtime.
	ID     string
	CPU    *statsv1alpha1.CPUStats
	Memory *statsv1alpha1.MemoryStats
	Swap   *statsv1alpha1.SwapStats
	IO     *statsv1alpha1.IOStats
	// WritableLayer has the time, the used bytes and the used inodes of the writable layer.
	// Mountpoint is a directory in the file system that the layer is on; empty if unknown.
	WritableLayer *statsv1alpha1.FsStats
	Mountpoint    string
}

// MetricsReporter is an optional interface of a [Runtime], see [Optional], for metrics that a
// runtime has beyond [Usage] (KEP-2371).
type MetricsReporter interface {
	// ListMetrics returns the metrics of all sandboxes and containers. It may take seconds: the
	// list of containerd 2.4 takes 0.1 s for each pod after the tenth. The error wraps
	// [errors.ErrUnsupported] if the runtime has none.
	ListMetrics(ctx context.Context) ([]MetricFamily, error)
}

// MetricFamily is a metric of a runtime.
type MetricFamily struct {
	// Name is cAdvisor's, such as "container_memory_cache". Package statsmetrics leaves out others.
	Name, Help string
	// Counter means that the values only grow as long as the container lives. Other metrics
	// are gauges.
	Counter bool
	// Labels are the names of the labels. They may have those of the pod and the container.
	Labels  []string
	Samples []MetricSample
}

// MetricSample is a value of a [MetricFamily].
type MetricSample struct {
	// SandboxID is the sandbox of the pod. ContainerID is empty for a metric of the whole pod.
	SandboxID, ContainerID string
	// LabelValues are the values of MetricFamily.Labels.
	LabelValues []string
	Value       float64
	// Time is zero if the runtime has measured it for this call.
	Time time.Time
}
