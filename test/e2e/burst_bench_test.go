package e2e

import (
	"context"
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
func BenchmarkBurst(b *testing.B) {
	forEachSize(b, "500", benchmarkBurst)
}

func benchmarkBurst(b *testing.B, n int) {
	c := benchCluster(b)
	agent, _ := crowd(b, c, AgentOptions{}, n)
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

	bursts := map[string]func(context.Context) error{
		"none":    func(context.Context) error { time.Sleep(2 * time.Second); return nil },
		"default": func(ctx context.Context) error { return reportAll(ctx, rt, n, 0) },
		"one":     func(ctx context.Context) error { return reportAll(ctx, rt, n, 1) },
		"fixed":   func(ctx context.Context) error { return inspectAll(ctx, rt, pods, 64) },
	}
	list := []contestant{{name: "none"}, {name: "default"}, {name: "one"}, {name: "fixed"}}
	took := samples{}
	takeTurns(b, list, func(who contestant) {
		began := time.Now()
		waits, err := whileWorking(b.Context(), rt, probe, bursts[who.name])
		if err != nil {
			b.Fatalf("%s: %v", who.name, err)
		}
		took.add(who.name, "s", time.Since(began).Seconds())
		took.add(who.name, "worker-ms", waits...)
	})
	took.report(b, list, "s", "one", func(name string) map[string]float64 {
		return map[string]float64{"worker-ms-p99": percentile(took[name]["worker-ms"], 99)}
	})
}

// whileWorking returns how long, in milliseconds, each of the inspections of the pod took
// that were made one after the other during the burst.
func whileWorking(ctx context.Context, rt runtime.Runtime, ref runtime.PodRef,
	burst func(context.Context) error) (waits []float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var worker sync.WaitGroup
	worker.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			if _, err := rt.InspectPod(ctx, ref); err == nil {
				waits = append(waits, 1e3*time.Since(began).Seconds())
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
