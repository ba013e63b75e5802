package runtime_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// described is an inspector whose pods have one container and what runtime/cri
// reads of such a pod. Each answer is made anew, as from a wire.
type described struct{}

func (described) InspectPod(_ context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	id := fmt.Sprintf("%064x", string(ref.UID))[:64]
	labels := func() map[string]string {
		return map[string]string{
			"io.kubernetes.pod.name": ref.Name, "io.kubernetes.pod.namespace": ref.Namespace, "io.kubernetes.pod.uid": string(ref.UID),
		}
	}
	status := &runtime.PodStatus{PodRef: ref, IPs: []string{"10.88.0.7"}}
	status.Sandboxes = []runtime.SandboxStatus{{
		Sandbox: runtime.Sandbox{ID: id, State: runtime.SandboxReady, CreatedAt: time.Now()},
		IPs:     status.IPs, Labels: labels(), Annotations: map[string]string{"kubernetes.io/config.source": "file"},
	}}
	c := runtime.ContainerStatus{StartedAt: time.Now(), Image: "registry.k8s.io/pause:3.10", ImageID: "sha256:" + id}
	c.ID, c.Name, c.SandboxID = runtime.ContainerID{Type: "containerd", ID: id}, "main", id
	c.State, c.CreatedAt = runtime.ContainerRunning, time.Now()
	status.Containers = []runtime.ContainerStatus{c}
	return status, nil
}

// BenchmarkCacheMemory measures what the cache holds for each pod of one container,
// its status included.
func BenchmarkCacheMemory(b *testing.B) {
	const pods = 5000
	heap := func() uint64 {
		var m goruntime.MemStats
		goruntime.GC()
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		cache := runtime.NewCache(described{}, runtime.CacheOptions{})
		for i := range pods {
			ref := runtime.PodRef{UID: types.UID(fmt.Sprintf("0c4b6a3e-%012d", i)), Name: fmt.Sprintf("pod-%d", i),
				Namespace: "default"}
			if _, err := cache.Newer(b.Context(), ref, cache.Now()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heap()-before)/pods, "B/pod")
		goruntime.KeepAlive(cache)
	}
}
