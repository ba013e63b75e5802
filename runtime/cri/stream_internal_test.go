package cri

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// parts is a stream that a test writes.
type parts struct {
	grpc.ClientStream
	recv func() (*criv1.StreamContainersResponse, error)
}

func (p parts) Recv() (*criv1.StreamContainersResponse, error) { return p.recv() }

func TestStreamedIsAllOrNothing(t *testing.T) {
	stream := func(rt *Runtime, open error, recv func(ctx context.Context, n int) error) ([]*criv1.Container, error) {
		return streamed(t.Context(), rt, "StreamContainers", func(ctx context.Context, _ *criv1.StreamContainersRequest,
			_ ...grpc.CallOption) (grpc.ServerStreamingClient[criv1.StreamContainersResponse], error) {
			n := 0
			return parts{recv: func() (*criv1.StreamContainersResponse, error) {
				if err := recv(ctx, n); err != nil {
					return nil, err
				}
				n++
				return &criv1.StreamContainersResponse{Containers: []*criv1.Container{{}, {}}}, nil
			}}, open
		}, nil, (*criv1.StreamContainersResponse).GetContainers)
	}
	rt := New(nil, nil, Options{CallTimeout: 5 * time.Second})
	endAfter2 := func(err error) func(context.Context, int) error {
		return func(_ context.Context, n int) error {
			if n == 2 {
				return err
			}
			return nil
		}
	}
	list, err := stream(rt, nil, endAfter2(io.EOF))
	require.NoError(t, err)
	assert.Len(t, list, 4)
	list, err = stream(rt, nil, endAfter2(status.Error(codes.Unavailable, "reset")))
	assert.ErrorIs(t, err, runtime.ErrUnavailable)
	assert.Empty(t, list)
	list, err = stream(rt, io.EOF, nil)
	assert.Error(t, err, "a stream that does not open is no empty list")
	assert.Empty(t, list)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		list, err := stream(rt, nil, func(ctx context.Context, n int) error {
			if n < 2 {
				return nil
			}
			<-ctx.Done()
			return status.FromContextError(ctx.Err()).Err()
		})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Empty(t, list)
		assert.Equal(t, 5*time.Second, time.Since(began), "the call timeout is that of the whole list")
	})
}

// TestAssembleAllocatesForPodsOnly compares pods of one container with pods of many,
// with hooks and ports on each.
func TestAssembleAllocatesForPodsOnly(t *testing.T) {
	allocs := func(containers int) float64 {
		all := newCrowd(100, containers, 0)
		l := listing{sandboxes: all.sandboxes.Items, containers: all.containers.Containers}
		return testing.AllocsPerRun(10, func() { assemble("fake", l) })
	}
	few, many := allocs(1), allocs(16)
	assert.Equal(t, few, many)
	assert.Less(t, few, 600.0, "a pod, its sandboxes, its containers (some twice under the race detector), and a "+
		"few for all")
}

// A runtime may list the instances of one container in any order.
func TestSortManyInstances(t *testing.T) {
	var list []*criv1.Container
	for i := range 100_000 {
		list = append(list, &criv1.Container{Id: fmt.Sprint(i), CreatedAt: int64(-i),
			Metadata: &criv1.ContainerMetadata{Name: "c", Attempt: uint32(i)}})
	}
	sortContainers(list, keyOfContainer)
	assert.True(t, slices.IsSortedFunc(list, func(a, b *criv1.Container) int {
		return int(b.GetMetadata().GetAttempt()) - int(a.GetMetadata().GetAttempt())
	}))
}
