package fake_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// parts reads a stream to its end, and returns how many items each part had.
func parts[R any](t *testing.T, count func(*R) int) func(grpc.ServerStreamingClient[R], error) []int {
	return func(stream grpc.ServerStreamingClient[R], err error) []int {
		t.Helper()
		require.NoError(t, err)
		var got []int
		for {
			part, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return got
			}
			require.NoError(t, err)
			got = append(got, count(part))
		}
	}
}

func TestListsInParts(t *testing.T) {
	rt := fake.New(fake.Options{Images: []string{"a", "b"}})
	require.NoError(t, rt.Seed(fake.Pods(130, 2)...))
	rt.Exit(fake.Target{Pod: "pod-3", Container: "c1"}, 1)
	conn := serve(t, rt)
	rs, is := rt.Clients()
	for name, c := range map[string]struct {
		criv1.RuntimeServiceClient
		criv1.ImageServiceClient
	}{
		"in memory":     {rs, is},
		"over the wire": {criv1.NewRuntimeServiceClient(conn), criv1.NewImageServiceClient(conn)},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			sandboxes := parts(t, func(r *criv1.StreamPodSandboxesResponse) int { return len(r.PodSandboxes) })
			assert.Equal(t, []int{100, 30}, sandboxes(c.StreamPodSandboxes(ctx, &criv1.StreamPodSandboxesRequest{})))
			containers := parts(t, func(r *criv1.StreamContainersResponse) int { return len(r.Containers) })
			assert.Equal(t, []int{100, 100, 60}, containers(c.StreamContainers(ctx, &criv1.StreamContainersRequest{})))
			exited := &criv1.ContainerStateValue{State: criv1.ContainerState_CONTAINER_EXITED}
			assert.Equal(t, []int{1},
				containers(c.StreamContainers(ctx,
					&criv1.StreamContainersRequest{Filter: &criv1.ContainerFilter{State: exited}})))
			none := &criv1.ContainerFilter{Id: "nobody"}
			assert.Empty(t, containers(c.StreamContainers(ctx, &criv1.StreamContainersRequest{Filter: none})),
				"an empty list has no part")
			assert.Equal(t, []int{100, 100, 59},
				parts(t, func(r *criv1.StreamContainerStatsResponse) int { return len(r.ContainerStats) })(
					c.StreamContainerStats(ctx, &criv1.StreamContainerStatsRequest{})))
			assert.Equal(t, []int{100, 30},
				parts(t, func(r *criv1.StreamPodSandboxStatsResponse) int { return len(r.PodSandboxStats) })(
					c.StreamPodSandboxStats(ctx, &criv1.StreamPodSandboxStatsRequest{})))
			assert.Equal(t, []int{100, 30},
				parts(t, func(r *criv1.StreamPodSandboxMetricsResponse) int { return len(r.PodSandboxMetrics) })(
					c.StreamPodSandboxMetrics(ctx, &criv1.StreamPodSandboxMetricsRequest{})))
			assert.Equal(t, []int{3}, parts(t, func(r *criv1.StreamImagesResponse) int { return len(r.Images) })(
				c.StreamImages(ctx, &criv1.StreamImagesRequest{})))
		})
	}
}

func TestFaultsOfListsInParts(t *testing.T) {
	rt := fake.New(fake.Options{})
	require.NoError(t, rt.Seed(fake.Pods(130, 1)...))
	rs, _ := rt.Clients()
	for name, c := range map[string]criv1.RuntimeServiceClient{"in memory": rs,
		"over the wire": criv1.NewRuntimeServiceClient(serve(t, rt))} {
		t.Run(name, func(t *testing.T) {
			read := func(ctx context.Context) (items int, err error) {
				stream, err := c.StreamContainers(ctx, &criv1.StreamContainersRequest{})
				for err == nil {
					var part *criv1.StreamContainersResponse
					part, err = stream.Recv()
					items += len(part.GetContainers())
				}
				return items, err
			}
			remove := rt.Inject(fake.Fault{Call: "ListContainers", Err: errors.New("not today")})
			items, err := read(t.Context())
			require.ErrorContains(t, err, "not today", "a fault of the list is one of its stream")
			assert.Zero(t, items)
			remove()

			remove = rt.Inject(fake.Fault{Call: "StreamContainers", Late: true, Err: errors.New("cut off")})
			items, err = read(t.Context())
			require.ErrorContains(t, err, "cut off")
			assert.Equal(t, 130, items, "all was sent but the end")
			remove()

			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err = read(ctx)
			require.ErrorContains(t, err, "canceled")
			items, err = read(t.Context())
			require.ErrorIs(t, err, io.EOF)
			assert.Equal(t, 130, items)
		})
	}
}
