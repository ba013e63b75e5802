package cri

import (
	"context"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// fabulist is a runtime that answers each call with the same bytes.
type fabulist struct {
	criv1.RuntimeServiceClient
	criv1.ImageServiceClient
	data []byte
}

// told returns the reply that the bytes stand for, of calls with a reply of that type.
func told[M any, P interface {
	*M
	proto.Message
}](f fabulist) (P, error) {
	reply := P(new(M))
	return reply, proto.Unmarshal(f.data, reply)
}

func (f fabulist) Version(context.Context, *criv1.VersionRequest, ...grpc.CallOption) (*criv1.VersionResponse, error) {
	return told[criv1.VersionResponse](f)
}

func (f fabulist) Status(context.Context, *criv1.StatusRequest, ...grpc.CallOption) (*criv1.StatusResponse, error) {
	return told[criv1.StatusResponse](f)
}

func (f fabulist) RuntimeConfig(context.Context, *criv1.RuntimeConfigRequest,
	...grpc.CallOption) (*criv1.RuntimeConfigResponse, error) {
	return told[criv1.RuntimeConfigResponse](f)
}

func (f fabulist) ListContainers(context.Context, *criv1.ListContainersRequest,
	...grpc.CallOption) (*criv1.ListContainersResponse, error) {
	return told[criv1.ListContainersResponse](f)
}

func (f fabulist) ListPodSandboxStats(context.Context, *criv1.ListPodSandboxStatsRequest,
	...grpc.CallOption) (*criv1.ListPodSandboxStatsResponse, error) {
	return told[criv1.ListPodSandboxStatsResponse](f)
}

func (f fabulist) ListContainerStats(context.Context, *criv1.ListContainerStatsRequest,
	...grpc.CallOption) (*criv1.ListContainerStatsResponse, error) {
	return told[criv1.ListContainerStatsResponse](f)
}

func (f fabulist) ContainerStats(context.Context, *criv1.ContainerStatsRequest,
	...grpc.CallOption) (*criv1.ContainerStatsResponse, error) {
	return told[criv1.ContainerStatsResponse](f)
}

func (f fabulist) ListMetricDescriptors(context.Context, *criv1.ListMetricDescriptorsRequest,
	...grpc.CallOption) (*criv1.ListMetricDescriptorsResponse, error) {
	return told[criv1.ListMetricDescriptorsResponse](f)
}

func (f fabulist) ListPodSandboxMetrics(context.Context, *criv1.ListPodSandboxMetricsRequest,
	...grpc.CallOption) (*criv1.ListPodSandboxMetricsResponse, error) {
	return told[criv1.ListPodSandboxMetricsResponse](f)
}

func (f fabulist) Exec(context.Context, *criv1.ExecRequest, ...grpc.CallOption) (*criv1.ExecResponse, error) {
	return told[criv1.ExecResponse](f)
}

func (f fabulist) ListImages(context.Context, *criv1.ListImagesRequest,
	...grpc.CallOption) (*criv1.ListImagesResponse, error) {
	return told[criv1.ListImagesResponse](f)
}

func (f fabulist) ImageStatus(context.Context, *criv1.ImageStatusRequest,
	...grpc.CallOption) (*criv1.ImageStatusResponse, error) {
	return told[criv1.ImageStatusResponse](f)
}

// Whatever a runtime tells of itself, of usage, metrics, images and streams, nothing panics, and what is
// passed on fits together.
func FuzzOtherReplies(f *testing.F) {
	add := func(m proto.Message) {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	number := &criv1.UInt64Value{Value: 1<<64 - 1}
	add(&criv1.StatusResponse{
		Status: &criv1.RuntimeStatus{Conditions: []*criv1.RuntimeCondition{{Type: criv1.RuntimeReady,
			Status: true}, {Type: criv1.NetworkReady}}},
		Info: map[string]string{"config": `{"sandboxImage":"pause:3"}`},
		RuntimeHandlers: []*criv1.RuntimeHandler{{Name: "x",
			Features: &criv1.RuntimeHandlerFeatures{UserNamespaces: true}}, {}},
	})
	add(linux(7))
	add(&criv1.ListContainersResponse{Containers: []*criv1.Container{{Id: "c", ImageRef: "i",
		Annotations: map[string]string{crimeta.AnnotationImageVolumes: "i,i,,j"}}}})
	stats := &criv1.ContainerStats{
		Attributes: &criv1.ContainerAttributes{Id: "c"}, Cpu: &criv1.CpuUsage{Timestamp: -1, UsageNanoCores: number},
		Memory:        &criv1.MemoryUsage{RssBytes: number},
		WritableLayer: &criv1.FilesystemUsage{FsId: &criv1.FilesystemIdentifier{Mountpoint: "/x"}, UsedBytes: number},
		Swap:          &criv1.SwapUsage{SwapUsageBytes: number},
	}
	add(&criv1.ListPodSandboxStatsResponse{Stats: []*criv1.PodSandboxStats{{Linux: &criv1.LinuxPodSandboxStats{
		Containers: []*criv1.ContainerStats{stats}, Network: &criv1.NetworkUsage{
			DefaultInterface: &criv1.NetworkInterfaceUsage{Name: "eth0"},
			Interfaces:       []*criv1.NetworkInterfaceUsage{{}}},
	}}}})
	add(&criv1.ListContainerStatsResponse{Stats: []*criv1.ContainerStats{stats}})
	add(&criv1.ContainerStatsResponse{Stats: stats})
	add(&criv1.ListMetricDescriptorsResponse{Descriptors: []*criv1.MetricDescriptor{{Name: "m",
		LabelKeys: []string{"a"}}, {Name: "m"}}})
	add(&criv1.ListPodSandboxMetricsResponse{PodMetrics: []*criv1.PodSandboxMetrics{{PodSandboxId: "s",
		Metrics: []*criv1.Metric{{Name: "m", LabelValues: []string{"x"}}}}}})
	add(&criv1.ExecResponse{Url: "http://127.0.0.1:1/exec/secret"})
	add(&criv1.ListImagesResponse{Images: []*criv1.Image{{Id: "i", RepoTags: []string{"i:1", "i:1"}, Size: 1<<64 - 1},
		{Id: "i", Pinned: true}}})
	add(&criv1.ImageStatusResponse{Image: &criv1.Image{Id: "i", Username: "0", Uid: &criv1.Int64Value{Value: -1}}})
	f.Fuzz(func(t *testing.T, data []byte) {
		teller := fabulist{data: data}
		r, ctx := New(teller, teller, Options{}), t.Context()
		r.unstreamed.Store(true)
		_ = r.Check(ctx)
		features := r.Features()
		if !slices.IsSortedFunc(features.Handlers,
			func(a, b runtime.Handler) int { return strings.Compare(a.Name, b.Name) }) {
			t.Error("handlers are not sorted")
		}
		if usage, err := r.ListUsage(ctx); err == nil {
			for i := range usage.Containers {
				if l := usage.Containers[i].WritableLayer; l == nil && usage.Containers[i].Mountpoint != "" {
					t.Error("a mount point without a layer")
				}
			}
		}
		if used, err := r.ContainerDiskUsage(ctx, runtime.ContainerID{ID: "c"}); err == nil && used < 0 {
			t.Errorf("the usage is %d", used)
		}
		families, _ := r.ListMetrics(ctx)
		for _, family := range families {
			for _, s := range family.Samples {
				if len(s.LabelValues) != len(family.Labels) {
					t.Errorf("%s has %d labels, and a sample %d", family.Name, len(family.Labels), len(s.LabelValues))
				}
			}
		}
		if images, err := r.ListImages(ctx); err == nil {
			ids := map[string]bool{}
			for _, image := range images.Images {
				if ids[image.ID] {
					t.Errorf("image %q is there twice", image.ID)
				}
				ids[image.ID] = true
			}
		}
		_, _ = (&imageStore{r: r}).Find(ctx, "")
		u, err := r.ExecURL(ctx, runtime.ContainerID{ID: "c"}, nil, runtime.StreamOptions{})
		reply, bad := told[criv1.ExecResponse](teller)
		switch {
		case err == nil && (u.Host == "" || u.Scheme != "http" && u.Scheme != "https"):
			t.Errorf("%q is a URL", u)
		case err != nil && bad == nil && len(reply.GetUrl()) > 20 && utf8.ValidString(reply.GetUrl()) &&
			strings.Contains(err.Error(), reply.GetUrl()):
			t.Errorf("the URL is in the error: %v", err)
		}
	})
}

func linux(driver criv1.CgroupDriver) *criv1.RuntimeConfigResponse {
	return &criv1.RuntimeConfigResponse{Linux: &criv1.LinuxRuntimeConfiguration{CgroupDriver: driver}}
}
