package agent_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// BenchmarkGrowth starts and ends n pods on a runtime in memory, and reports the time for
// each pod: it must not grow with n. The runtime is part of it.
//
//	go test -run '^$' -bench Growth -benchtime 1x .
func BenchmarkGrowth(b *testing.B) {
	for _, n := range []int{100, 500, 2000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			var start, end time.Duration
			for b.Loop() {
				s, e := startAndEnd(b, n)
				start, end = start+s, end+e
			}
			each := float64(b.N * n)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(start.Microseconds())/each, "start-µs/pod")
			b.ReportMetric(float64(end.Microseconds())/each, "end-µs/pod")
		})
	}
}

// startAndEnd returns how long an agent takes to start and to end n pods.
func startAndEnd(b *testing.B, n int) (start, end time.Duration) {
	b.Helper()
	dir := b.TempDir()
	rt := fake.New(fake.Options{Images: []string{"busybox:1"}, Dir: dir, Calls: -1})
	defer rt.Close()
	source := podconfigfake.NewSource("test")
	host := rt.Host()
	agent, err := kubeletkit.New(kubeletkit.Options{
		NodeName: host.NodeName, RootDir: filepath.Join(dir, "root"), Host: host,
		Runtime: rt, Sources: []podconfig.Source{source},
	})
	require.NoError(b, err)
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1) // one value, of the one goroutine
	go func() { done <- agent.Run(ctx) }()
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = onePod(fmt.Sprintf("web-%d", i))
	}
	timed := func(desired []*v1.Pod, reached func() bool) time.Duration {
		began := time.Now()
		source.Set(desired...)
		for !reached() {
			time.Sleep(20 * time.Millisecond)
		}
		return time.Since(began)
	}
	timed(nil, agent.Synced)
	start = timed(pods, func() bool { return len(rt.Running(fake.Target{})) == n })
	end = timed(nil, func() bool { return rt.ReadySandboxes(fake.Target{})+len(rt.Instances(fake.Target{})) == 0 })
	stop()
	require.NoError(b, <-done)
	return start, end
}
