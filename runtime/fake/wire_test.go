package fake_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// fill starts pods on a fake behind a wire, and returns its client.
func fill(tb testing.TB, n int) *cri.Runtime {
	tb.Helper()
	f := fake.New(fake.Options{Images: []string{"image:1"}, Calls: -1})
	conn := serve(tb, f)
	rt := cri.New(criv1.NewRuntimeServiceClient(conn), criv1.NewImageServiceClient(conn), cri.Options{})
	dir := tb.TempDir()
	host := &runtime.Host{PodLogsDir: filepath.Join(dir, "logs")}
	for i := range n {
		pod := makePod(fmt.Sprintf("pod-%d", i), "main")
		_, err := rt.SyncPod(tb.Context(), runtime.PodSync{Pod: pod, Host: host, Dir: filepath.Join(dir, pod.Name)})
		require.NoError(tb, err)
	}
	return rt
}

func TestManyPodsOverTheWire(t *testing.T) {
	const n = 300
	rt := fill(t, n)
	pods, err := rt.ListPods(t.Context(), true)
	require.NoError(t, err)
	require.Len(t, pods, n)
	for _, p := range pods[:20] {
		s, err := rt.InspectPod(t.Context(), p.PodRef)
		require.NoError(t, err)
		require.Len(t, s.Containers, 1)
	}
}

// BenchmarkOverTheWire shows that a question about one pod does not cost more
// where there are thousands.
func BenchmarkOverTheWire(b *testing.B) {
	for _, n := range []int{10, 5000} {
		rt := fill(b, n)
		ref := runtime.RefOf(makePod("pod-7", "main"))
		b.Run(fmt.Sprintf("inspect one of %d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := rt.InspectPod(b.Context(), ref); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("list %d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := rt.ListPods(b.Context(), true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
