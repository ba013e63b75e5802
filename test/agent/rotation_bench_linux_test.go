package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/logs"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// rotationNode is an agent on a runtime in memory, in real time, that rotates logs.
type rotationNode struct {
	*kubeletkit.Agent
	root      string
	rt        *fake.Runtime
	source    *podconfigfake.Source
	rotations atomic.Int64
	// stop ends the agent.
	stop func()
}

// startRotationNode starts an agent that rotates logs of the size. If it is 0, the agent rotates none.
func startRotationNode(b *testing.B, maxSize int64, change ...func(*kubeletkit.Options)) *rotationNode {
	b.Helper()
	dir := b.TempDir()
	n := &rotationNode{
		root: filepath.Join(dir, "root"), source: podconfigfake.NewSource("test"),
		rt: fake.New(fake.Options{Images: []string{"busybox:1"}, Dir: dir, Calls: -1,
			Behavior: func(fake.Container) fake.Behavior { return fake.Behavior{Output: "began\n"} }}),
	}
	host := n.rt.Host()
	host.PodLogsDir = filepath.Join(n.root, "logs")
	opts := kubeletkit.Options{NodeName: host.NodeName, RootDir: n.root, Host: host, Runtime: n.rt,
		Sources: []podconfig.Source{n.source}}
	opts.Observe.Event = func(runtime.Event) {}
	opts.Observe.Measure = func(m runtime.Measurement) {
		if _, ok := m.(logs.Rotated); ok {
			n.rotations.Add(1)
		}
	}
	if maxSize > 0 {
		manager, err := logs.New(n.rt, logs.Options{Dir: host.PodLogsDir, MaxSize: maxSize})
		require.NoError(b, err)
		opts.Join = []lifecycle.Component{manager}
	}
	for _, f := range change {
		f(&opts)
	}
	var err error
	n.Agent, err = kubeletkit.New(opts)
	require.NoError(b, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context())) // b.Context ends before the cleanup
	done := make(chan error, 1)                                         // one value, of the one goroutine
	go func() { done <- n.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		stop()
		require.NoError(b, <-done)
		require.NoError(b, n.rt.Close())
	})
	b.Cleanup(n.stop)
	n.source.Set()
	return n
}

// run has pods run, and returns the paths of their logs.
func (n *rotationNode) run(b *testing.B, count int) (paths []string) {
	b.Helper()
	pods := make([]*v1.Pod, count)
	for i := range pods {
		pods[i] = onePod(fmt.Sprintf("web-%d", i))
	}
	n.source.Put(pods...)
	_, err := n.rt.UntilRunning(b.Context(), fake.Target{}, count)
	require.NoError(b, err)
	for ; len(paths) < count; time.Sleep(time.Millisecond) {
		paths, err = filepath.Glob(filepath.Join(n.root, "logs", "*", "*", "0.log"))
		require.NoError(b, err)
	}
	return paths
}

// appendTo appends to a file that exists.
func appendTo(path, data string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err // it is being rotated
	}
	defer f.Close()
	_, err = f.WriteString(data)
	return err
}

// startOne starts a pod, and returns how long it takes from its delivery until it runs. It waits until nothing is left
// of it.
func (n *rotationNode) startOne(b *testing.B, name string) time.Duration {
	b.Helper()
	pod, target := onePod(name), fake.Target{Pod: name}
	began := time.Now()
	n.source.Put(pod)
	_, err := n.rt.UntilRunning(b.Context(), target, 1)
	took := time.Since(began)
	require.NoError(b, err)
	n.source.Remove(pod.UID)
	require.NoError(b,
		n.rt.Until(b.Context(), func() bool { return n.rt.ReadySandboxes(target)+len(n.rt.Instances(target)) == 0 }))
	return took
}

// BenchmarkStartBesideRotations starts pods one after the other on a runtime in memory: while four containers write 4
// KiB each to their logs in each millisecond, which are rotated at 256 KiB; while images and dead containers are
// collected each 10 ms; and alone, while the same is written to other files.
//
//	go test -run '^$' -bench StartBesideRotations -benchtime 5x .
func BenchmarkStartBesideRotations(b *testing.B) {
	const maxSize, writers, starts = 256 << 10, 4, 50
	n := startRotationNode(b, maxSize)
	paths := n.run(b, writers)
	var toLogs, collects atomic.Bool
	var work sync.WaitGroup
	ctx, stop := context.WithCancel(b.Context())
	line := strings.Repeat("x", 4<<10-1) + "\n"
	for _, path := range paths {
		other := filepath.Join(b.TempDir(), "file")
		require.NoError(b, os.WriteFile(other, nil, 0o600))
		work.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if toLogs.Load() {
					_ = appendTo(path, line)
				} else if _ = appendTo(other, line); i%(maxSize/len(line)) == 0 {
					_ = os.Truncate(other, 0)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	work.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if collects.Load() {
				n.rt.AddImage(fake.Image{Name: fmt.Sprintf("spare-%d:1", i)})
				_ = n.Parts().GC.DeleteUnused(ctx)
				_ = n.Parts().ImageGC.GarbageCollect(ctx)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	took := map[string][]time.Duration{}
	rotated := int64(0)
	for b.Loop() {
		for i := range starts { // by turns, since the machine may do other work
			for _, side := range []string{"alone", "rotations", "collections"} {
				toLogs.Store(side == "rotations")
				collects.Store(side == "collections")
				time.Sleep(20 * time.Millisecond)
				before := n.rotations.Load()
				took[side] = append(took[side], n.startOne(b, fmt.Sprintf("%s-%d", side, i)))
				if side == "rotations" {
					rotated += n.rotations.Load() - before
				}
			}
		}
	}
	stop()
	work.Wait()
	for _, list := range took {
		slices.Sort(list)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(rotated)/float64(len(took["rotations"])), "rotations/start")
	alone := took["alone"]
	b.ReportMetric(float64(alone[len(alone)/2].Microseconds()), "alone-µs")
	for _, side := range []string{"rotations", "collections"} {
		ratio := func(part float64) float64 {
			i := int(part * float64(len(alone)))
			return float64(took[side][i]) / float64(alone[i])
		}
		b.ReportMetric(ratio(0.5), side+"-ratio")
		b.ReportMetric(ratio(0.99), side+"-p99-ratio")
	}
}

// BenchmarkQuietLogs measures the CPU time of agent and runtime, in a percentage of a core, while 500 pods run that
// have written a line to their logs: with the rotation of logs, and without. Pods are synced each 10 s, six times as
// often as by default. A round takes 80 s.
//
//	go test -run '^$' -bench QuietLogs -benchtime 3x .
func BenchmarkQuietLogs(b *testing.B) {
	const pods, window = 500, 30 * time.Second
	used := map[bool]time.Duration{}
	for b.Loop() {
		for _, rotates := range []bool{false, true} {
			maxSize := int64(0)
			if rotates {
				maxSize = 10 << 20
			}
			n := startRotationNode(b, maxSize, func(o *kubeletkit.Options) { o.Workers.ResyncInterval = window / 3 })
			n.run(b, pods)
			time.Sleep(window / 3)
			before := cpu(b)
			time.Sleep(window)
			used[rotates] += cpu(b) - before
			n.stop()
		}
	}
	b.ReportMetric(0, "ns/op")
	share := func(rotates bool) float64 { return 100 * used[rotates].Seconds() / window.Seconds() / float64(b.N) }
	b.ReportMetric(share(true), "rotates-%")
	b.ReportMetric(share(false), "without-%")
	b.ReportMetric(share(true)/share(false), "ratio")
}
