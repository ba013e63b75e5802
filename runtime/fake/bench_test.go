package fake_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// BenchmarkServer measures calls over a wire, and beside the largest of them what the
// client alone has to do for it, which is to decode it: the rest is gRPC's and the fake's.
func BenchmarkServer(b *testing.B) {
	for _, n := range []int{100, 5000} {
		f := fake.New(fake.Options{Calls: -1})
		pods := fake.Pods(n, 1)
		require.NoError(b, f.Seed(pods...))
		rs := criv1.NewRuntimeServiceClient(serve(b, f))
		some := f.Instances(fake.Target{UID: pods[n/2].UID})[0]
		ofPod := map[string]string{"io.kubernetes.pod.uid": string(pods[n/2].UID)}
		for _, call := range []struct {
			name string
			make func(ctx context.Context) error
		}{
			{"list containers", func(ctx context.Context) error {
				_, err := rs.ListContainers(ctx, &criv1.ListContainersRequest{})
				return err
			}},
			{"list sandboxes", func(ctx context.Context) error {
				_, err := rs.ListPodSandbox(ctx, &criv1.ListPodSandboxRequest{})
				return err
			}},
			{"list containers of a pod", func(ctx context.Context) error {
				_, err := rs.ListContainers(ctx,
					&criv1.ListContainersRequest{Filter: &criv1.ContainerFilter{LabelSelector: ofPod}})
				return err
			}},
			{"status of a sandbox", func(ctx context.Context) error {
				_, err := rs.PodSandboxStatus(ctx, &criv1.PodSandboxStatusRequest{PodSandboxId: some.SandboxID})
				return err
			}},
			{"status of a container", func(ctx context.Context) error {
				_, err := rs.ContainerStatus(ctx, &criv1.ContainerStatusRequest{ContainerId: some.ID.ID})
				return err
			}},
		} {
			b.Run(fmt.Sprintf("%d pods/%s", n, call.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := call.make(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(fmt.Sprintf("%d pods/decoding the list of containers", n), func(b *testing.B) {
			list, err := rs.ListContainers(b.Context(), &criv1.ListContainersRequest{})
			require.NoError(b, err)
			codec := encoding.GetCodecV2(proto.Name)
			data, err := codec.Marshal(list)
			require.NoError(b, err)
			defer data.Free()
			b.ReportAllocs()
			b.ReportMetric(float64(data.Len())/float64(n), "bytes/pod")
			for b.Loop() {
				if err := codec.Unmarshal(data, &criv1.ListContainersResponse{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLatency has calls take 2 ms each, 64 of them at once: what an operation takes
// beyond 2 ms / 64 = 31 µs is what the fake, its client and gRPC add.
func BenchmarkLatency(b *testing.B) {
	f := fake.New(fake.Options{Calls: -1})
	pods := fake.Pods(5000, 1)
	require.NoError(b, f.Seed(pods...))
	f.Inject(fake.Fault{Delay: 2 * time.Millisecond})
	rs := criv1.NewRuntimeServiceClient(serve(b, f))
	instances := f.Instances(fake.Target{})
	var next atomic.Int64
	b.SetParallelism(64 / goruntime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := instances[int(next.Add(1))%len(instances)].ID.ID
			if _, err := rs.ContainerStatus(b.Context(), &criv1.ContainerStatusRequest{ContainerId: id}); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkInspect shows what a client of whole pods sees: a question about one costs no
// more where there are thousands.
func BenchmarkInspect(b *testing.B) {
	for _, n := range []int{100, 5000} {
		f := fake.New(fake.Options{Calls: -1})
		pods := fake.Pods(n, 1)
		require.NoError(b, f.Seed(pods...))
		conn := serve(b, f)
		rt := cri.New(criv1.NewRuntimeServiceClient(conn), criv1.NewImageServiceClient(conn), cri.Options{})
		b.Run(fmt.Sprintf("one of %d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := rt.InspectPod(b.Context(), runtime.RefOf(pods[n/2])); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("list %d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := rt.ListPods(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLoad measures what sets the scene.
func BenchmarkLoad(b *testing.B) {
	pods := fake.Pods(5000, 1)
	b.Run("seed 5000 pods", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, fake.New(fake.Options{Calls: -1}).Seed(pods...))
		}
	})
	f := fake.New(fake.Options{Calls: -1})
	require.NoError(b, f.Seed(pods...))
	for _, n := range []int{50, 5000} {
		b.Run(fmt.Sprintf("restart %d of them", n), func(b *testing.B) {
			for b.Loop() {
				require.Len(b, f.RestartNext(n, 1), n)
			}
		})
	}
}
