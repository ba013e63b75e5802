package kubelet

import (
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/metrics/prometheus/statsmetrics"
	"github.com/kubeletkit/kubeletkit/node/stats"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// BenchmarkMetrics reads /metrics of an agent with 100 pods on a fake runtime, as Prometheus does.
func BenchmarkMetrics(b *testing.B) {
	const pods = 100
	dir := b.TempDir()
	m, err := newMetrics(logr.Discard())
	require.NoError(b, err)
	rt, source := fake.New(fake.Options{}), podconfigfake.NewSource("bench")
	defer rt.Close()
	logs := filepath.Join(dir, "logs")
	collector, err := stats.New(rt, stats.Options{RootDir: dir, PodLogsDir: logs})
	require.NoError(b, err)
	agent, err := kubeletkit.New(kubeletkit.Options{NodeName: "node", RootDir: dir, Runtime: rt, Host: rt.Host(),
		Sources: []podconfig.Source{source}, Join: []lifecycle.Component{collector},
		Observe: kubeletkit.Observe{Measure: m.agent}})
	require.NoError(b, err)
	var list []*v1.Pod
	for i := range pods {
		name := fmt.Sprintf("pod-%d", i)
		list = append(list, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default",
			UID: types.UID(name)}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "image:1"}}}})
		of := filepath.Join(logs, "default_"+name+"_"+name, "main")
		require.NoError(b, os.MkdirAll(of, 0o755))
		require.NoError(b, os.WriteFile(filepath.Join(of, "0.log"), []byte("line\n"), 0o600))
	}
	source.Set(list...)
	_, err = statsmetrics.NewDisk(m.registry, collector.Disk)
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = agent.Run(ctx) })
	defer done.Wait()
	defer cancel()
	require.Eventually(b, func() bool {
		running, measured := 0, 0
		for _, pod := range agent.Pods() {
			if pod.Status.Phase == v1.PodRunning {
				running++
			}
		}
		for _, d := range collector.Disk() {
			measured += len(d.Logs)
		}
		return running == pods && measured == pods
	}, time.Minute, 100*time.Millisecond)
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept-Encoding", "gzip")
	for b.Loop() {
		rec := httptest.NewRecorder()
		m.handler.ServeHTTP(rec, req)
		if rec.Code != http.StatusOK {
			b.Fatal(rec.Code)
		}
		if _, err := gzip.NewReader(rec.Body); err != nil {
			b.Fatal(err)
		}
	}
}
