package cri

import (
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"sync"
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

// called records the list calls that a server gets, and fails those that fail names.
type called struct {
	mu    sync.Mutex
	names []string
	fail  map[string]error
}

func (c *called) note(method string) error {
	name := path.Base(method)
	c.mu.Lock()
	defer c.mu.Unlock()
	if name != "Version" {
		c.names = append(c.names, name)
	}
	return c.fail[name]
}

func (c *called) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
			if err := c.note(info.FullMethod); err != nil {
				return nil, err
			}
			return serve(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
			if err := c.note(info.FullMethod); err != nil {
				return err
			}
			return serve(srv, s)
		}),
	}
}

// take returns the calls since it was called last, in the order of their names.
func (c *called) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := c.names
	c.names = nil
	slices.Sort(names)
	return names
}

func (c *called) failing(err error, methods ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = map[string]error{}
	for _, m := range methods {
		c.fail[m] = err
	}
}

func TestListsAreStreamed(t *testing.T) {
	var calls called
	rt := newCrowd(10, 2, 3).dial(t, Options{}, calls.options()...)
	for range 2 {
		pods, err := rt.ListPods(t.Context())
		require.NoError(t, err)
		require.Len(t, pods, 10)
		for _, p := range pods {
			assert.Len(t, p.Sandboxes, 1)
			assert.Len(t, p.Containers, 2)
		}
		assert.Equal(t, []string{"StreamContainers", "StreamPodSandboxes"}, calls.take())
	}

	calls.failing(status.Error(codes.Internal, "store"), "StreamContainers")
	_, err := rt.ListPods(t.Context())
	assert.EqualError(t, err, "StreamContainers: store")
	assert.NotContains(t, calls.take(), "ListContainers", "only a call that is missing has a stand-in")

	_, err = rt.InspectPod(t.Context(), runtime.PodRef{UID: "u"})
	assert.Error(t, err, "the crowd does not filter, and has no statuses")
	assert.Subset(t, calls.take(), []string{"ListContainers", "ListPodSandbox"}, "the list of one pod is short")
}

func TestRuntimeWithoutStreamedLists(t *testing.T) {
	var calls called
	rt := newCrowd(10, 2, 0).dial(t, Options{}, calls.options()...)
	list := func() error {
		pods, err := rt.ListPods(t.Context())
		if err == nil {
			assert.Len(t, pods, 10)
		}
		return err
	}
	unary := []string{"ListContainers", "ListPodSandbox"}
	both := append(slices.Clone(unary), "StreamContainers", "StreamPodSandboxes")
	require.NoError(t, list())
	assert.Subset(t, both, calls.take())
	require.NoError(t, list())
	assert.Equal(t, unary, calls.take(), "it is not asked again")

	calls.failing(status.Error(codes.Unavailable, "restarting"), "ListContainers")
	assert.ErrorIs(t, list(), runtime.ErrUnavailable)
	calls.failing(nil)
	calls.take()
	require.NoError(t, list())
	assert.Subset(t, calls.take(), unary)
	require.NoError(t, list())
	// What the failing list gave up may be noted as late as now.
	last := calls.take()
	assert.Subset(t, last, unary)
	assert.Subset(t, unary, last, "it is asked once more, not each time")
}

// TestListsAreAskedForAgainAfterAnUpdate has a runtime that learns to stream.
func TestListsAreAskedForAgainAfterAnUpdate(t *testing.T) {
	var calls called
	unknown := status.Error(codes.Unimplemented, "unknown method")
	rt := newCrowd(10, 2, 3).dial(t, Options{}, calls.options()...)
	calls.failing(unknown, "StreamContainers", "StreamPodSandboxes")
	_, err := rt.ListPods(t.Context())
	require.NoError(t, err)
	assert.True(t, rt.unstreamed.Load())
	calls.failing(status.Error(codes.ResourceExhausted, "trying to send message larger than max (16784723 vs. 16777216)"), "ListContainers")
	_, err = rt.ListPods(t.Context())
	assert.EqualError(t, err, "ListContainers: trying to send message larger than max (16784723 vs. 16777216): bytes of the reply, and the runtime's own limit; raise that (max_send_message_size in containerd, grpc_max_send_msg_size in CRI-O)")
	calls.take()
	_, err = rt.ListPods(t.Context())
	require.NoError(t, err, "now it streams, and the size does not matter")
	assert.Equal(t, []string{"StreamContainers", "StreamPodSandboxes"}, calls.take())
}

func TestListsThatAreTooLarge(t *testing.T) {
	rt := newCrowd(100, 1, 0).dial(t, Options{MaxMessageSize: 64 << 10})
	_, err := rt.ListPods(t.Context())
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Regexp(t, `^ListContainers: grpc: received message larger than max \(1\d{5} vs\. 65536\): bytes of the reply, and the limit; raise cri\.Options\.MaxMessageSize$`, err.Error())

	rt = newCrowd(100, 1, 0).dial(t, Options{}, grpc.MaxSendMsgSize(64<<10))
	_, err = rt.ListPods(t.Context())
	assert.Regexp(t, `^ListContainers: trying to send message larger than max \(1\d{5} vs\. 65536\): bytes of the reply, and the runtime's own limit; raise that `, err.Error())

	rt = newCrowd(100, 1, 10).dial(t, Options{MaxMessageSize: 64 << 10})
	pods, err := rt.ListPods(t.Context())
	require.NoError(t, err)
	assert.Len(t, pods, 100)
}

// parts is a stream that a test writes.
type parts struct {
	grpc.ClientStream
	recv func() (*criv1.StreamContainersResponse, error)
}

func (p parts) Recv() (*criv1.StreamContainersResponse, error) { return p.recv() }

func TestStreamedIsAllOrNothing(t *testing.T) {
	stream := func(rt *Runtime, open error, recv func(ctx context.Context, n int) error) ([]*criv1.Container, error) {
		return streamed(t.Context(), rt, "StreamContainers", func(ctx context.Context, _ *criv1.StreamContainersRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[criv1.StreamContainersResponse], error) {
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
	rt := newService().runtime(Options{CallTimeout: 5 * time.Second})
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
	assert.Less(t, few, 600.0, "a pod, its sandboxes, its containers (some twice under the race detector), and a few for all")
}

func TestUnimplementedIsUnsupported(t *testing.T) {
	err := wrapCall("Method", "", status.Error(codes.Unimplemented, "unknown method Method"), nil)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.EqualError(t, err, "Method: unknown method Method")
}
