package fake

import (
	"context"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// streamPart is the number of items in one message of a streamed list, at most. It is
// less than in real runtimes, so that lists in tests have several parts.
const streamPart = 100

// ListStreams returns the names of the calls that stream lists (KEP-5825), which are new
// in CRI v0.37. Put them into [Options].Without for an older runtime.
func ListStreams() []string { return slices.Sorted(maps.Keys(listStreams())) }

// listStreams maps the calls that stream lists to the corresponding unary calls.
var listStreams = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"StreamPodSandboxes":      "ListPodSandbox",
		"StreamContainers":        "ListContainers",
		"StreamContainerStats":    "ListContainerStats",
		"StreamPodSandboxStats":   "ListPodSandboxStats",
		"StreamPodSandboxMetrics": "ListPodSandboxMetrics",
		"StreamImages":            "ListImages",
	}
})

// stream answers a call with a list in parts. A fault strikes before the first part or,
// if it is late, after the last one: the list then has no end.
func stream[T, R any](s *service, method string, req any, out grpc.ServerStreamingServer[R], list func() []T,
	message func(part []T) *R) error {
	_, err := s.begin(out.Context(), method, req).run(func(context.Context) (any, error) {
		for part := range slices.Chunk(list(), streamPart) {
			if err := out.Send(message(part)); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	return err
}

// StreamPodSandboxes is ListPodSandbox in parts.
func (s *runtimeServer) StreamPodSandboxes(req *criv1.StreamPodSandboxesRequest,
	out grpc.ServerStreamingServer[criv1.StreamPodSandboxesResponse]) error {
	return stream(s.s, "StreamPodSandboxes", req, out,
		func() []item { return s.s.listSandboxes(req.GetFilter()) },
		func(part []item) *criv1.StreamPodSandboxesResponse {
			resp := &criv1.StreamPodSandboxesResponse{}
			resp.ProtoReflect().SetUnknown(join(part))
			return resp
		})
}

// StreamContainers is ListContainers in parts.
func (s *runtimeServer) StreamContainers(req *criv1.StreamContainersRequest,
	out grpc.ServerStreamingServer[criv1.StreamContainersResponse]) error {
	return stream(s.s, "StreamContainers", req, out,
		func() []item { return s.s.listContainers(req.GetFilter()) },
		func(part []item) *criv1.StreamContainersResponse {
			resp := &criv1.StreamContainersResponse{}
			resp.ProtoReflect().SetUnknown(join(part))
			return resp
		})
}

// StreamContainerStats is ListContainerStats in parts.
func (s *runtimeServer) StreamContainerStats(req *criv1.StreamContainerStatsRequest,
	out grpc.ServerStreamingServer[criv1.StreamContainerStatsResponse]) error {
	return stream(s.s, "StreamContainerStats", req, out,
		func() []*criv1.ContainerStats { return s.s.listContainerStats(req.GetFilter()) },
		func(part []*criv1.ContainerStats) *criv1.StreamContainerStatsResponse {
			return &criv1.StreamContainerStatsResponse{ContainerStats: part}
		})
}

// StreamPodSandboxStats is ListPodSandboxStats in parts.
func (s *runtimeServer) StreamPodSandboxStats(req *criv1.StreamPodSandboxStatsRequest,
	out grpc.ServerStreamingServer[criv1.StreamPodSandboxStatsResponse]) error {
	return stream(s.s, "StreamPodSandboxStats", req, out,
		func() []*criv1.PodSandboxStats { return s.s.listSandboxStats(req.GetFilter()) },
		func(part []*criv1.PodSandboxStats) *criv1.StreamPodSandboxStatsResponse {
			return &criv1.StreamPodSandboxStatsResponse{PodSandboxStats: part}
		})
}

// StreamPodSandboxMetrics is ListPodSandboxMetrics in parts.
func (s *runtimeServer) StreamPodSandboxMetrics(req *criv1.StreamPodSandboxMetricsRequest,
	out grpc.ServerStreamingServer[criv1.StreamPodSandboxMetricsResponse]) error {
	return stream(s.s, "StreamPodSandboxMetrics", req, out, s.s.listMetrics,
		func(part []*criv1.PodSandboxMetrics) *criv1.StreamPodSandboxMetricsResponse {
			return &criv1.StreamPodSandboxMetricsResponse{PodSandboxMetrics: part}
		})
}

// StreamImages is ListImages in parts.
func (s *imageServer) StreamImages(req *criv1.StreamImagesRequest,
	out grpc.ServerStreamingServer[criv1.StreamImagesResponse]) error {
	return stream(s.s, "StreamImages", req, out,
		func() []*criv1.Image { return s.s.listImages(req.GetFilter()) },
		func(part []*criv1.Image) *criv1.StreamImagesResponse {
			return &criv1.StreamImagesResponse{Images: part}
		})
}
