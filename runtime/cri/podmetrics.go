package cri

import (
	"context"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

var _ runtime.MetricsReporter = (*Runtime)(nil)

// ListMetrics implements [runtime.MetricsReporter] with ListMetricDescriptors and
// ListPodSandboxMetrics, which is streamed if the runtime supports that. Metrics without a
// descriptor, and values that do not fit it, are omitted.
func (r *Runtime) ListMetrics(ctx context.Context) ([]runtime.MetricFamily, error) {
	described, err := call(ctx, r, "ListMetricDescriptors", "", 0, r.rs.ListMetricDescriptors,
		&criv1.ListMetricDescriptorsRequest{})
	if err != nil {
		return nil, err
	}
	list, err := listOf(r, func() ([]*criv1.PodSandboxMetrics, error) {
		return streamed(ctx, r, "StreamPodSandboxMetrics", r.rs.StreamPodSandboxMetrics,
			&criv1.StreamPodSandboxMetricsRequest{}, (*criv1.StreamPodSandboxMetricsResponse).GetPodSandboxMetrics)
	}, func() ([]*criv1.PodSandboxMetrics, error) {
		resp, err := call(ctx, r, "ListPodSandboxMetrics", "", 0, r.rs.ListPodSandboxMetrics,
			&criv1.ListPodSandboxMetricsRequest{})
		return resp.GetPodMetrics(), err
	})
	if err != nil {
		return nil, err
	}
	families := make([]runtime.MetricFamily, 0, len(described.GetDescriptors()))
	index := make(map[string]int, len(described.GetDescriptors()))
	for _, d := range described.GetDescriptors() {
		if _, twice := index[d.GetName()]; !twice {
			index[d.GetName()] = len(families)
			families = append(families, runtime.MetricFamily{Name: d.GetName(), Help: d.GetHelp(),
				Labels: d.GetLabelKeys()})
		}
	}
	add := func(sandbox, container string, metrics []*criv1.Metric) {
		for _, m := range metrics {
			at, ok := index[m.GetName()]
			if !ok || len(m.GetLabelValues()) != len(families[at].Labels) {
				continue
			}
			f, counter := &families[at], m.GetMetricType() == criv1.MetricType_COUNTER
			if len(f.Samples) == 0 {
				f.Counter = counter
			}
			if f.Counter == counter {
				f.Samples = append(f.Samples, runtime.MetricSample{
					SandboxID: sandbox, ContainerID: container, LabelValues: m.GetLabelValues(),
					Value: float64(m.GetValue().GetValue()), Time: unixTime(m.GetTimestamp()),
				})
			}
		}
	}
	for _, pod := range list {
		add(pod.GetPodSandboxId(), "", pod.GetMetrics())
		for _, c := range pod.GetContainerMetrics() {
			add(pod.GetPodSandboxId(), c.GetContainerId(), c.GetMetrics())
		}
	}
	return families, nil
}
