// Package crimetrics has the metrics of package runtime/cri for Prometheus, under
// kubelet's names. It is apart from package prommetrics, since runtime/cri needs gRPC.
package crimetrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubeletkit/kubeletkit/metrics/prometheus/internal/collector"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// CRI has the metrics of package cri. Names, types, buckets and help are kubelet's
// (pkg/kubelet/metrics/metrics.go at 1.37). The label runtime_handler is empty for pods
// without a runtime class, as there.
type CRI struct {
	operations, operationErrors *prometheus.CounterVec
	operationDuration           *prometheus.HistogramVec
	startedPods, podErrors      prometheus.Counter
	userPods, userPodErrors     prometheus.Counter
	sandboxDuration             *prometheus.HistogramVec
	sandboxErrors               *prometheus.CounterVec
	containers, containerErrors *prometheus.CounterVec
	resizeDuration              *prometheus.HistogramVec
}

// New registers the metrics of one runtime. The error names the metric that the
// registry refused; then none is registered.
func New(reg prometheus.Registerer) (*CRI, error) {
	vec := func(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(collector.HistogramOpts(collector.Kubelet(name, help), buckets),
			[]string{label})
	}
	m := &CRI{
		operations: collector.Counters(collector.Kubelet("runtime_operations_total",
			"Cumulative number of runtime operations by operation type."), "operation_type"),
		operationErrors: collector.Counters(collector.Kubelet("runtime_operations_errors_total",
			"Cumulative number of runtime operation errors by operation type."), "operation_type"),
		operationDuration: vec("runtime_operations_duration_seconds", "Duration in seconds of runtime operations. "+
			"Broken down by operation type.", prometheus.ExponentialBuckets(.005, 2.5, 14), "operation_type"),
		startedPods: collector.Counter(collector.Kubelet("started_pods_total",
			"Cumulative number of pods started")),
		podErrors: collector.Counter(collector.Kubelet("started_pods_errors_total",
			"Cumulative number of errors when starting pods")),
		userPods: collector.Counter(collector.Kubelet("started_user_namespaced_pods_total",
			"Cumulative number of pods with user namespaces started. This metric will only be collected on Linux.")),
		userPodErrors: collector.Counter(collector.Kubelet("started_user_namespaced_pods_errors_total",
			"Cumulative number of errors when starting pods with user namespaces. This metric will only be "+
				"collected on Linux.")),
		sandboxDuration: vec("run_podsandbox_duration_seconds", "Duration in seconds of the run_podsandbox "+
			"operations. Broken down by RuntimeClass.Handler.", nil, "runtime_handler"),
		sandboxErrors: collector.Counters(collector.Kubelet("run_podsandbox_errors_total",
			"Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler."), "runtime_handler"),
		containers: collector.Counters(collector.Kubelet("started_containers_total",
			"Cumulative number of containers started"), "container_type"),
		containerErrors: collector.Counters(collector.Kubelet("started_containers_errors_total",
			"Cumulative number of errors when starting containers"), "container_type", "code"),
	}
	m.resizeDuration = vec("pod_resize_duration_milliseconds", "Duration in milliseconds to actuate a pod resize",
		[]float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}, "success")
	err := collector.Register(reg, "runtime", collector.Group{
		m.operations, m.operationErrors, m.operationDuration, m.startedPods, m.podErrors, m.userPods, m.userPodErrors,
		m.sandboxDuration, m.sandboxErrors, m.containers, m.containerErrors,
		m.resizeDuration,
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Measure is a [runtime.MeasureFunc] that receives the measurements of package cri.
func (m *CRI) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case cri.Call:
		m.called(v)
	case cri.SandboxStart:
		m.sandboxStarted(v)
	case cri.PodResize:
		m.resizeDuration.WithLabelValues(strconv.FormatBool(v.Err == nil)).Observe(float64(v.Took.Milliseconds()))
	case cri.PodStart:
		m.podStarted(v)
	case cri.ContainerStart:
		m.containerStarted(v)
	}
}

func (m *CRI) called(c cri.Call) {
	op := c.Operation()
	m.operations.WithLabelValues(op).Inc()
	m.operationDuration.WithLabelValues(op).Observe(c.Took.Seconds())
	if c.Err != nil {
		m.operationErrors.WithLabelValues(op).Inc()
	}
}

func (m *CRI) sandboxStarted(s cri.SandboxStart) {
	m.startedPods.Inc()
	m.sandboxDuration.WithLabelValues(s.RuntimeHandler).Observe(s.Took.Seconds())
	if s.Err != nil {
		m.podErrors.Inc()
		m.sandboxErrors.WithLabelValues(s.RuntimeHandler).Inc()
	}
}

func (m *CRI) podStarted(p cri.PodStart) {
	if !p.UserNamespace {
		return
	}
	m.userPods.Inc()
	if p.Err != nil {
		m.userPodErrors.Inc()
	}
}

func (m *CRI) containerStarted(c cri.ContainerStart) {
	kind := typeLabel(c.Kind)
	m.containers.WithLabelValues(kind).Inc()
	if c.Reason != "" {
		m.containerErrors.WithLabelValues(kind, c.Reason).Inc()
	}
}

// typeLabel returns kubelet's value of the label container_type.
func typeLabel(kind podspec.ContainerKind) string {
	switch kind {
	case podspec.InitContainer:
		return "init_container"
	case podspec.EphemeralContainer:
		return "ephemeral_container"
	default:
		return "container"
	}
}
