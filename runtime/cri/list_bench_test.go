package cri

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
)

// crowd is a CRI service that lists many pods. Its answers are made beforehand.
type crowd struct {
	criv1.UnimplementedRuntimeServiceServer
	sandboxes  *criv1.ListPodSandboxResponse
	containers *criv1.ListContainersResponse
	// The same in parts; without any, the service has no streams.
	sandboxParts   []*criv1.StreamPodSandboxesResponse
	containerParts []*criv1.StreamContainersResponse
}

// newCrowd makes pods with what kubelet writes on them, 1.1 kB for each container.
// The lists are streamed in parts of chunk, or not at all if that is 0.
func newCrowd(pods, containers, chunk int) *crowd {
	all := &crowd{sandboxes: &criv1.ListPodSandboxResponse{}, containers: &criv1.ListContainersResponse{}}
	const began = 1_700_000_000_000_000_000
	for i := range pods {
		uid, name := fmt.Sprintf("0c4b6a3e-4b1e-4a6c-9d0f-%012d", i), fmt.Sprintf("deployment-7d9c5b8f6d-%05d", i)
		labels := map[string]string{crimeta.LabelPodUID: uid, crimeta.LabelPodName: name,
			crimeta.LabelPodNamespace: "default"}
		sandbox := &criv1.PodSandbox{
			Id: fmt.Sprintf("%064d", i), Metadata: &criv1.PodSandboxMetadata{Name: name, Namespace: "default",
				Uid: uid},
			CreatedAt: began + int64(i), Labels: maps.Clone(labels),
			Annotations: map[string]string{"kubernetes.io/config.seen": "2026-11-21T08:18:31.000000000Z",
				"kubernetes.io/config.source": "file"},
		}
		sandbox.Labels["app"] = "deployment"
		all.sandboxes.Items = append(all.sandboxes.Items, sandbox)
		for j := range containers {
			cname := fmt.Sprintf("container-%d", j)
			labels := maps.Clone(labels)
			labels[crimeta.LabelContainerName] = cname
			all.containers.Containers = append(all.containers.Containers, &criv1.Container{
				Id: fmt.Sprintf("%032d%032d", i, j), PodSandboxId: sandbox.Id,
				Metadata: &criv1.ContainerMetadata{Name: cname},
				Image:    &criv1.ImageSpec{Image: fmt.Sprintf("sha256:%064d", j)},
				ImageRef: fmt.Sprintf("registry.example.com/team/app@sha256:%064d", j),
				ImageId:  fmt.Sprintf("sha256:%064d", j),
				State:    criv1.ContainerState_CONTAINER_RUNNING, CreatedAt: began + int64(i*containers+j),
				Labels: labels,
				Annotations: map[string]string{
					"io.kubernetes.container.hash": "5f0e1b2c", "io.kubernetes.container.restartCount": "0",
					"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
					"io.kubernetes.container.terminationMessagePolicy": "File",
					"io.kubernetes.container.ports":                    `[{"name":"http","containerPort":8080,"protocol":"TCP"}]`,
					"io.kubernetes.container.preStopHandler":           `{"exec":{"command":["sleep","5"]}}`,
					"io.kubernetes.pod.terminationGracePeriod":         "30",
				},
			})
		}
	}
	if chunk > 0 {
		for part := range slices.Chunk(all.sandboxes.Items, chunk) {
			all.sandboxParts = append(all.sandboxParts, &criv1.StreamPodSandboxesResponse{PodSandboxes: part})
		}
		for part := range slices.Chunk(all.containers.Containers, chunk) {
			all.containerParts = append(all.containerParts, &criv1.StreamContainersResponse{Containers: part})
		}
	}
	return all
}

func (*crowd) Version(context.Context, *criv1.VersionRequest) (*criv1.VersionResponse, error) {
	return &criv1.VersionResponse{RuntimeName: "fake"}, nil
}

func (c *crowd) ListPodSandbox(context.Context, *criv1.ListPodSandboxRequest) (*criv1.ListPodSandboxResponse, error) {
	return c.sandboxes, nil
}

func (c *crowd) ListContainers(context.Context, *criv1.ListContainersRequest) (*criv1.ListContainersResponse, error) {
	return c.containers, nil
}

func (c *crowd) StreamPodSandboxes(_ *criv1.StreamPodSandboxesRequest,
	s grpc.ServerStreamingServer[criv1.StreamPodSandboxesResponse]) error {
	return sendParts(c.sandboxParts, s)
}

func (c *crowd) StreamContainers(_ *criv1.StreamContainersRequest,
	s grpc.ServerStreamingServer[criv1.StreamContainersResponse]) error {
	return sendParts(c.containerParts, s)
}

func sendParts[T any](parts []*T, s grpc.ServerStreamingServer[T]) error {
	if len(parts) == 0 {
		return status.Error(codes.Unimplemented, "unknown method")
	}
	for _, part := range parts {
		if err := s.Send(part); err != nil {
			return err
		}
	}
	return nil
}

// encodeOnce is the codec of a server whose answers are always the same values: it
// encodes each once, so that a benchmark measures the client.
type encodeOnce struct {
	encoding.CodecV2
	done sync.Map
}

func (c *encodeOnce) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := c.done.Load(v); ok {
		return b.(mem.BufferSlice), nil
	}
	encoded, err := c.CodecV2.Marshal(v)
	if err != nil {
		return nil, err
	}
	b := mem.BufferSlice{mem.SliceBuffer(encoded.Materialize())}
	encoded.Free()
	c.done.Store(v, b)
	return b, nil
}

// dial serves the crowd on a socket and returns a Runtime over it.
func (c *crowd) dial(b *testing.B) *Runtime {
	b.Helper()
	dir, err := os.MkdirTemp("", "cri") // a short path, as those of sockets have to be
	require.NoError(b, err)
	path := filepath.Join(dir, "s")
	lis, err := net.Listen("unix", path)
	require.NoError(b, err)
	srv := grpc.NewServer(grpc.ForceServerCodecV2(&encodeOnce{CodecV2: encoding.GetCodecV2(proto.Name)}))
	criv1.RegisterRuntimeServiceServer(srv, c)
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(lis) }()
	rt, err := Dial(b.Context(), path, Options{})
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, rt.Close())
		srv.Stop()
		<-served
		require.NoError(b, os.RemoveAll(dir))
	})
	return rt
}

// BenchmarkListPods lists 1000 pods over a socket. Beside it, "calls" is what the list
// calls alone cost: the difference is what is done with their answers.
func BenchmarkListPods(b *testing.B) {
	for _, containers := range []int{1, 8} {
		rt := newCrowd(1000, containers, 5000).dial(b)
		b.Run(fmt.Sprintf("containers=%d/calls", containers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l, err := rt.list(b.Context(), "", "")
				require.NoError(b, err)
				require.Len(b, l.containers, 1000*containers)
			}
		})
		b.Run(fmt.Sprintf("containers=%d/pods", containers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				pods, err := rt.ListPods(b.Context())
				require.NoError(b, err)
				require.Len(b, pods, 1000)
			}
		})
	}
}

// BenchmarkLists compares one reply with streams, for 5000 containers in parts of as
// many as containerd sends, as runtime/process does, and of one.
func BenchmarkLists(b *testing.B) {
	for _, chunk := range []int{0, 5000, 200, 1} {
		rt := newCrowd(5000, 1, chunk).dial(b)
		rt.unstreamed.Store(chunk == 0)
		name := "one reply"
		if chunk > 0 {
			name = fmt.Sprintf("parts of %d", chunk)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l, err := rt.list(b.Context(), "", "")
				require.NoError(b, err)
				require.Len(b, l.containers, 5000)
			}
		})
	}
}

// BenchmarkAssemble is the difference in [BenchmarkListPods] alone.
func BenchmarkAssemble(b *testing.B) {
	for _, containers := range []int{1, 8} {
		b.Run(fmt.Sprintf("containers=%d", containers), func(b *testing.B) {
			all := newCrowd(1000, containers, 0)
			l := listing{sandboxes: all.sandboxes.Items, containers: all.containers.Containers}
			b.ReportAllocs()
			for b.Loop() {
				assemble("fake", l)
			}
		})
	}
}
