package fake

import (
	"context"
	"time"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// metric is a metric of every running container.
type metric struct {
	name, help string
	kind       criv1.MetricType
	value      func(t *total) uint64
}

// metrics returns some metrics of cAdvisor (KEP-2371).
func metrics() []metric {
	return []metric{
		{"container_cpu_usage_seconds_total", "Cumulative CPU time consumed in seconds.", criv1.MetricType_COUNTER,
			func(t *total) uint64 { return uint64(t.cpu / time.Second) }},
		{"container_memory_working_set_bytes", "Current working set in bytes.", criv1.MetricType_GAUGE,
			func(t *total) uint64 { return t.Memory }},
		{"container_processes", "Number of processes running inside the container.", criv1.MetricType_GAUGE,
			func(t *total) uint64 { return t.Processes }},
	}
}

// ListMetricDescriptors lists the metrics.
func (s *runtimeServer) ListMetricDescriptors(context.Context,
	*criv1.ListMetricDescriptorsRequest) (*criv1.ListMetricDescriptorsResponse, error) {
	resp := &criv1.ListMetricDescriptorsResponse{}
	for _, m := range metrics() {
		resp.Descriptors = append(resp.Descriptors, &criv1.MetricDescriptor{
			Name: m.name, Help: m.help, LabelKeys: []string{"id", "name", "image", "container", "pod", "namespace"},
		})
	}
	return resp, nil
}

// ListPodSandboxMetrics lists the metrics of running containers in ready sandboxes.
func (s *runtimeServer) ListPodSandboxMetrics(context.Context,
	*criv1.ListPodSandboxMetricsRequest) (*criv1.ListPodSandboxMetricsResponse, error) {
	return &criv1.ListPodSandboxMetricsResponse{PodMetrics: s.s.listMetrics()}, nil
}

func (s *service) listMetrics() []*criv1.PodSandboxMetrics {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*criv1.PodSandboxMetrics
	for _, sb := range s.sandboxes.all {
		if !sb.ready {
			continue
		}
		pod := &criv1.PodSandboxMetrics{PodSandboxId: sb.id}
		for _, c := range sb.containers {
			if c.state == criv1.ContainerState_CONTAINER_RUNNING {
				pod.ContainerMetrics = append(pod.ContainerMetrics, c.metrics())
			}
		}
		all = append(all, pod)
	}
	return all
}

// metrics returns the metrics of a container. mu is held.
func (c *container) metrics() *criv1.ContainerMetrics {
	var t total
	t.add(c)
	out := &criv1.ContainerMetrics{ContainerId: c.id}
	labels := []string{c.id, c.id, c.image(), c.name(), c.sandbox.pod.Name, c.sandbox.pod.Namespace}
	for _, m := range metrics() {
		out.Metrics = append(out.Metrics, &criv1.Metric{
			Name: m.name, Timestamp: time.Now().UnixNano(), MetricType: m.kind, LabelValues: labels,
			Value: value(m.value(&t)),
		})
	}
	return out
}
