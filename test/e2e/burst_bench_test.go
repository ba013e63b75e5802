package e2e

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkBurst has all of 500 pods changed at once, for a generator that has just
// been started, and measures until it has reported all, with the bound of inspections
// that it finds by itself, with one at a time, and with 64 at a time whatever
// the runtime does. Meanwhile a worker inspects one pod over and over: what that
// takes is what the burst costs the pods that are being worked on. Each way is
// measured by turns, several times in one run.
//
//	go test -run '^$' -bench Burst -benchtime 5x -timeout 30m
//
// KUBELETKIT_E2E_PODS sets another number.
func BenchmarkBurst(b *testing.B) {
	n := 500
	if text := os.Getenv("KUBELETKIT_E2E_PODS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatalf("KUBELETKIT_E2E_PODS: %v", err)
		}
	}
	c := NewCluster(b)
	c.Preload(b, "pause:1", "busybox:1")
	agent, _ := crowd(b, c, AgentOptions{Config: map[string]any{"maxPods": n}}, n)
	agent.Stop(b)
	rt, err := cri.Dial(b.Context(), c.Endpoint(), cri.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer rt.Close()
	pods, err := rt.ListPods(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	probe := pods[0].PodRef

	ways := []struct {
		name  string
		burst func(context.Context) error
	}{
		{"idle", func(context.Context) error { time.Sleep(2 * time.Second); return nil }},
		{"adaptive", func(ctx context.Context) error { return reportAll(ctx, rt, n, 0) }},
		{"one", func(ctx context.Context) error { return reportAll(ctx, rt, n, 1) }},
		{"fixed", func(ctx context.Context) error { return inspectAll(ctx, rt, pods, 64) }},
	}
	took, latency := map[string][]float64{}, map[string][]float64{}
	for b.Loop() {
		for _, way := range ways {
			began := time.Now()
			waits, err := whileWorking(b.Context(), rt, probe, way.burst)
			if err != nil {
				b.Fatalf("%s: %v", way.name, err)
			}
			took[way.name] = append(took[way.name], time.Since(began).Seconds())
			latency[way.name] = append(latency[way.name], waits...)
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, way := range ways {
		b.Logf("%d pods, %s: %.2f s; the worker's call: median %.1f ms, p99 %.1f ms", n, way.name, median(took[way.name]),
			1e3*median(latency[way.name]), 1e3*percentile(latency[way.name], 99))
	}
	b.ReportMetric(median(took["one"])/median(took["adaptive"]), "one/adaptive")
	b.ReportMetric(median(took["fixed"])/median(took["adaptive"]), "fixed/adaptive")
	b.ReportMetric(median(latency["adaptive"])/median(latency["one"]), "latency-adaptive/one")
	b.ReportMetric(median(latency["fixed"])/median(latency["one"]), "latency-fixed/one")
}

// whileWorking returns how long, in seconds, each of the inspections of the pod took
// that were made one after the other during the burst.
func whileWorking(ctx context.Context, rt runtime.Runtime, ref runtime.PodRef, burst func(context.Context) error) (waits []float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var worker sync.WaitGroup
	worker.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			if _, err := rt.InspectPod(ctx, ref); err == nil {
				waits = append(waits, time.Since(began).Seconds())
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	err = burst(ctx)
	cancel()
	worker.Wait()
	return waits, err
}

// reportAll runs a generator until it has reported n pods.
func reportAll(ctx context.Context, rt runtime.Runtime, n, bound int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := pleg.NewGeneric(rt, runtime.NewCache(rt, runtime.CacheOptions{}), pleg.Options{MaxInspections: bound})
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	for range n {
		<-g.Watch()
	}
	cancel()
	return <-ended
}

// inspectAll inspects the pods, so many at a time.
func inspectAll(ctx context.Context, rt runtime.Runtime, pods []*runtime.Pod, bound int) error {
	if _, err := rt.ListPods(ctx); err != nil {
		return err
	}
	var inspections errgroup.Group
	inspections.SetLimit(bound)
	for _, pod := range pods {
		inspections.Go(func() error {
			_, err := rt.InspectPod(ctx, pod.PodRef)
			return err
		})
	}
	return inspections.Wait()
}
