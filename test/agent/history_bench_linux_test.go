package agent_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/history"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/status"
)

// BenchmarkHistory measures what the history costs a start: the CPU time of an agent that
// starts pods on a runtime in memory, with a history and without one, one after the other.
// Each metric is a median. The runtime in memory does in microseconds what a real one does in
// tens of milliseconds, so the ratio is an upper bound.
func BenchmarkHistory(b *testing.B) {
	const pods = 200
	var with, without []float64
	for i := 0; b.Loop(); i++ {
		store, err := history.New(history.Options{})
		require.NoError(b, err)
		if i%2 == 0 { // none always comes first, in a process that grows
			without = append(without, startCPU(b, pods, history.None{}))
		}
		with = append(with, startCPU(b, pods, store))
		require.Len(b, store.Pods(), pods)
		if i%2 == 1 {
			without = append(without, startCPU(b, pods, history.None{}))
		}
	}
	median := func(list []float64) float64 { slices.Sort(list); return list[len(list)/2] }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(without)/pods, "µs-CPU/start-without")
	b.ReportMetric(median(with)/pods, "µs-CPU/start-with")
	b.ReportMetric(median(with)/median(without), "ratio")
}

// running counts the pods that have become ready.
type running struct {
	status.SinkBase
	left atomic.Int32
	all  chan struct{}
}

func (r *running) Deliver(_ context.Context, _ *v1.Pod, s v1.PodStatus) (status.Result, error) {
	if s.Phase == v1.PodRunning && s.ContainerStatuses[0].Ready && r.left.Add(-1) == 0 {
		close(r.all)
	}
	return status.Result{}, nil
}

// startCPU returns the CPU time in microseconds that an agent takes to start the pods.
func startCPU(b *testing.B, pods int, h history.Store) float64 {
	rt := fake.New(fake.Options{})
	defer rt.Close()
	source, dir := podconfigfake.NewSource("test"), b.TempDir()
	sink := &running{all: make(chan struct{})}
	sink.left.Store(int32(pods))
	opts := kubeletkit.Options{NodeName: "node", RootDir: dir, Runtime: rt, Host: rt.Host(),
		Sources: []podconfig.Source{source}, StatusSink: sink,
		Observe: kubeletkit.Observe{Event: func(runtime.Event) {}}}
	opts.Override.History = kubeletkit.Replace(h)
	agent, err := kubeletkit.New(opts)
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- agent.Run(ctx) }()
	list := make([]*v1.Pod, pods)
	for i := range list {
		list[i] = makePod(fmt.Sprintf("web-%d", i))
	}
	goruntime.GC() // what was there before is not of this start
	before := cpuTime(b)
	source.Set(list...)
	select {
	case <-sink.all:
	case <-time.After(time.Minute):
		b.Fatal("the pods have not started within a minute")
	}
	used := cpuTime(b) - before
	cancel()
	require.NoError(b, <-ended)
	return float64(used.Microseconds())
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
