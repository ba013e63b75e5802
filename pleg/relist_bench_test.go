//go:build unix

package pleg_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
	"github.com/kubeletkit/kubeletkit/runtime/fake/criserver"
)

// wire is a generator over a CRI server on a unix socket.
type wire struct {
	rt     *fake.Runtime
	g      *pleg.Generic
	listed chan struct{}
}

// counting sends to listed after each list call.
type counting struct {
	runtime.Lister
	listed chan struct{}
}

func (c counting) ListPods(ctx context.Context) ([]*runtime.Pod, error) {
	pods, err := c.Lister.ListPods(ctx)
	select {
	case c.listed <- struct{}{}:
	case <-ctx.Done():
	}
	return pods, err
}

// newWire has n pods run, each call to the server take that long, and at most limit
// inspections side by side, with 0 for the default.
func newWire(b *testing.B, n int, latency time.Duration, limit int) *wire {
	b.Helper()
	w := &wire{rt: fake.New(fake.Options{Calls: -1}), listed: make(chan struct{})}
	if err := w.rt.Seed(fake.Pods(n, 1)...); err != nil {
		b.Fatal(err)
	}
	socket := filepath.Join(b.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(served)
		_ = criserver.Serve(ctx, w.rt, l)
	}()
	client, err := cri.Dial(b.Context(), "unix://"+socket, cri.Options{})
	if err != nil {
		b.Fatal(err)
	}
	w.g = pleg.NewGeneric(counting{client, w.listed}, runtime.NewCache(client, runtime.CacheOptions{}),
		pleg.Options{RelistPeriod: time.Hour, MaxInspections: limit})
	go func() {
		defer close(ended)
		_ = w.g.Run(ctx)
	}()
	b.Cleanup(func() {
		stop()
		<-ended
		_ = client.Close()
		<-served
		_ = w.rt.Close()
	})
	<-w.listed
	w.drain(n)
	w.rt.Inject(fake.Fault{Delay: latency})
	return w
}

// drain takes the events of n pods.
func (w *wire) drain(n int) {
	for seen := map[types.UID]struct{}{}; len(seen) < n; {
		ev := <-w.g.Watch()
		seen[ev.Pod.UID] = struct{}{}
	}
}

// relist has n pods change and relists, until the reader has the events of all. It
// returns how long that took, and the CPU time of client and server.
func (w *wire) relist(n int) (took, cpu time.Duration) {
	if n > 0 {
		w.rt.RestartNext(n, 1)
	}
	began, used := time.Now(), processCPU()
	w.g.Relist()
	<-w.listed
	w.drain(n)
	return time.Since(began), processCPU() - used
}

func processCPU() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		panic(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// BenchmarkRelist measures from the beginning of a relist to the last event in
// the reader's hands, over the fake CRI server on a socket, whose calls take a while.
func BenchmarkRelist(b *testing.B) {
	for _, pods := range []int{110, 500, 1000, 5000} {
		for _, changed := range []int{0, pods / 100, pods} {
			for _, latency := range []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond} {
				b.Run(fmt.Sprintf("pods=%d/changed=%d/latency=%v", pods, changed, latency), func(b *testing.B) {
					w := newWire(b, pods, latency, 0)
					var took, cpu time.Duration
					b.ReportAllocs()
					for b.Loop() {
						t, c := w.relist(changed)
						took, cpu = took+t, cpu+c
					}
					b.ReportMetric(took.Seconds()*1e3/float64(b.N), "ms/relist")
					if changed > 0 {
						b.ReportMetric(float64(cpu.Microseconds())/float64(b.N*changed), "cpu-µs/changed-pod")
					}
				})
			}
		}
	}
}

// BenchmarkRelistSideBySide compares, by turns in one run, the default bound of
// inspections with one at a time: 1000 pods, all changed, 2 ms a call.
func BenchmarkRelistSideBySide(b *testing.B) {
	const pods, latency = 1000, 2 * time.Millisecond
	together, single := newWire(b, pods, latency, 0), newWire(b, pods, latency, 1)
	var took, cpu [2]time.Duration
	for b.Loop() {
		for i, w := range []*wire{together, single} {
			t, c := w.relist(pods)
			took[i], cpu[i] = took[i]+t, cpu[i]+c
		}
	}
	b.ReportMetric(took[0].Seconds()*1e3/float64(b.N), "ms")
	b.ReportMetric(took[1].Seconds()*1e3/float64(b.N), "one-by-one-ms")
	b.ReportMetric(float64(took[1])/float64(took[0]), "times-faster")
	b.ReportMetric(float64(cpu[0])/float64(cpu[1]), "cpu-ratio")
}

// BenchmarkRelistWithAHungPod measures, while the inspection of one of 1000 pods
// hangs, how long the events of all others take.
func BenchmarkRelistWithAHungPod(b *testing.B) {
	const pods = 1000
	w := newWire(b, pods, 2*time.Millisecond, 0)
	hung := fake.Pods(1, 1)[0]
	w.rt.Inject(fake.Fault{Call: "ContainerStatus", Target: fake.Target{UID: hung.UID}, Hang: true})
	var took time.Duration
	for b.Loop() {
		w.rt.RestartNext(pods, 1)
		began := time.Now()
		w.g.Relist()
		<-w.listed
		w.drain(pods - 1)
		took += time.Since(began)
		if err := w.g.Healthy(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(took.Seconds()*1e3/float64(b.N), "ms-for-the-others")
}
