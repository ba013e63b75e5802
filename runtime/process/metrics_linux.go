package process

import (
	"context"

	"google.golang.org/grpc"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// metric is a metric of every container (KEP-2371). The labels are cAdvisor's.
type metric struct {
	name, help string
	kind       criv1.MetricType
	value      func(u *usage) uint64
}

// containerMetrics returns the metrics that host processes have.
func containerMetrics() []metric {
	return []metric{
		{"container_cpu_usage_nanoseconds_total", "CPU time that the container has used, in nanoseconds.",
			criv1.MetricType_COUNTER,
			func(u *usage) uint64 { return uint64(u.cpu) }},
		{"container_memory_rss", "Memory of the container's processes without swap and file cache, in bytes.",
			criv1.MetricType_GAUGE,
			func(u *usage) uint64 { return u.rss }},
		{"container_memory_working_set_bytes", "Memory of the container that the kernel cannot reclaim, in bytes.",
			criv1.MetricType_GAUGE,
			func(u *usage) uint64 { return u.workingSet }},
		{"container_processes", "Number of processes of the container.", criv1.MetricType_GAUGE,
			func(u *usage) uint64 { return u.processes }},
	}
}

// metricLabels returns the labels of each metric.
func metricLabels() []string {
	return []string{"id", "name", "image", "container", "pod", "namespace"}
}

// ListMetricDescriptors implements CRI.
func (s *runtimeService) ListMetricDescriptors(context.Context,
	*criv1.ListMetricDescriptorsRequest) (*criv1.ListMetricDescriptorsResponse, error) {
	resp := &criv1.ListMetricDescriptorsResponse{}
	for _, m := range containerMetrics() {
		resp.Descriptors = append(resp.Descriptors, &criv1.MetricDescriptor{Name: m.name, Help: m.help,
			LabelKeys: metricLabels()})
	}
	return resp, nil
}

// ListPodSandboxMetrics implements CRI.
func (s *runtimeService) ListPodSandboxMetrics(context.Context,
	*criv1.ListPodSandboxMetricsRequest) (*criv1.ListPodSandboxMetricsResponse, error) {
	all, err := s.podMetrics()
	return &criv1.ListPodSandboxMetricsResponse{PodMetrics: all}, err
}

func (s *Server) podMetrics() ([]*criv1.PodSandboxMetrics, error) {
	stats, err := s.containerStats(func(*container) bool { return true })
	if err != nil {
		return nil, err
	}
	pods := map[string]*criv1.PodSandboxMetrics{}
	s.mu.Lock()
	boxes := make(map[string]*sandbox, len(s.sandboxes))
	for id, b := range s.sandboxes {
		boxes[id], pods[id] = b, &criv1.PodSandboxMetrics{PodSandboxId: id}
	}
	s.mu.Unlock()
	for _, st := range stats {
		c := st.container
		b := boxes[c.rec.SandboxID]
		if b == nil {
			continue
		}
		meta, pod := c.rec.Config.GetMetadata(), b.rec.Config.GetMetadata()
		labels := []string{c.rec.ID, c.rec.ID, imageSpec(c.rec.Config).GetImage(), meta.GetName(),
			pod.GetName(), pod.GetNamespace()}
		of := &criv1.ContainerMetrics{ContainerId: c.rec.ID}
		for _, m := range containerMetrics() {
			of.Metrics = append(of.Metrics, &criv1.Metric{
				Name: m.name, Timestamp: st.used.at.UnixNano(), MetricType: m.kind, LabelValues: labels,
				Value: value(m.value(st.used)),
			})
		}
		pods[b.rec.ID].ContainerMetrics = append(pods[b.rec.ID].ContainerMetrics, of)
	}
	var all []*criv1.PodSandboxMetrics
	for _, p := range pods {
		all = append(all, p)
	}
	return all, nil
}

// streamChunk is the number of items in a message of a streamed list (KEP-5825). It keeps
// a message far below maxMessageSize, also with long labels.
const streamChunk = 200

// sendChunks sends a list in several messages.
func sendChunks[T, R any](items []T, stream grpc.ServerStreamingServer[R], wrap func([]T) *R) error {
	for len(items) > 0 {
		n := min(len(items), streamChunk)
		if err := stream.Send(wrap(items[:n])); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

// StreamPodSandboxes implements CRI.
func (s *runtimeService) StreamPodSandboxes(req *criv1.StreamPodSandboxesRequest,
	stream grpc.ServerStreamingServer[criv1.StreamPodSandboxesResponse]) error {
	return sendChunks(s.listSandboxes(req.GetFilter()), stream,
		func(part []*criv1.PodSandbox) *criv1.StreamPodSandboxesResponse {
			return &criv1.StreamPodSandboxesResponse{PodSandboxes: part}
		})
}

// StreamContainers implements CRI.
func (s *runtimeService) StreamContainers(req *criv1.StreamContainersRequest,
	stream grpc.ServerStreamingServer[criv1.StreamContainersResponse]) error {
	return sendChunks(s.listContainers(req.GetFilter()), stream,
		func(part []*criv1.Container) *criv1.StreamContainersResponse {
			return &criv1.StreamContainersResponse{Containers: part}
		})
}

// StreamContainerStats implements CRI.
func (s *runtimeService) StreamContainerStats(req *criv1.StreamContainerStatsRequest,
	stream grpc.ServerStreamingServer[criv1.StreamContainerStatsResponse]) error {
	resp, err := s.ListContainerStats(stream.Context(), &criv1.ListContainerStatsRequest{Filter: req.GetFilter()})
	if err != nil {
		return err
	}
	return sendChunks(resp.GetStats(), stream, func(part []*criv1.ContainerStats) *criv1.StreamContainerStatsResponse {
		return &criv1.StreamContainerStatsResponse{ContainerStats: part}
	})
}

// StreamPodSandboxStats implements CRI.
func (s *runtimeService) StreamPodSandboxStats(req *criv1.StreamPodSandboxStatsRequest,
	stream grpc.ServerStreamingServer[criv1.StreamPodSandboxStatsResponse]) error {
	resp, err := s.ListPodSandboxStats(stream.Context(), &criv1.ListPodSandboxStatsRequest{Filter: req.GetFilter()})
	if err != nil {
		return err
	}
	return sendChunks(resp.GetStats(), stream,
		func(part []*criv1.PodSandboxStats) *criv1.StreamPodSandboxStatsResponse {
			return &criv1.StreamPodSandboxStatsResponse{PodSandboxStats: part}
		})
}

// StreamPodSandboxMetrics implements CRI.
func (s *runtimeService) StreamPodSandboxMetrics(_ *criv1.StreamPodSandboxMetricsRequest,
	stream grpc.ServerStreamingServer[criv1.StreamPodSandboxMetricsResponse]) error {
	all, err := s.podMetrics()
	if err != nil {
		return err
	}
	return sendChunks(all, stream, func(part []*criv1.PodSandboxMetrics) *criv1.StreamPodSandboxMetricsResponse {
		return &criv1.StreamPodSandboxMetricsResponse{PodSandboxMetrics: part}
	})
}

// StreamImages implements CRI.
func (s *imageService) StreamImages(req *criv1.StreamImagesRequest,
	stream grpc.ServerStreamingServer[criv1.StreamImagesResponse]) error {
	resp, err := s.ListImages(stream.Context(), &criv1.ListImagesRequest{Filter: req.GetFilter()})
	if err != nil {
		return err
	}
	return sendChunks(resp.GetImages(), stream, func(part []*criv1.Image) *criv1.StreamImagesResponse {
		return &criv1.StreamImagesResponse{Images: part}
	})
}
