package prober_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/prober"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Observers that block for ever, or panic, hold up no attempt, no result, and not the end of Run.
func TestObserversHoldUpNothing(t *testing.T) {
	for _, fault := range []string{"block", "panic"} {
		for _, observer := range []string{"Event", "Record", "Measure"} {
			t.Run(observer+" "+fault, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broken := testenv.BrokenObserver(t, fault == "panic")
					opts := prober.Options{}
					switch observer {
					case "Event":
						opts.Event = func(runtime.Event) { broken() }
					case "Record":
						opts.Record = func(runtime.Record) { broken() }
					case "Measure":
						opts.Measure = func(runtime.Measurement) { broken() }
					}
					n := newNode()
					m, err := prober.New(n, n, opts)
					require.NoError(t, err)
					ctx, cancel := context.WithCancel(t.Context())
					var run sync.WaitGroup
					run.Go(func() { assert.NoError(t, m.Run(ctx)) })
					n.on("fails", 1)
					pod := podWith(v1.Container{
						ReadinessProbe: exec("ready", v1.Probe{PeriodSeconds: 1}),
						LivenessProbe:  exec("fails", v1.Probe{PeriodSeconds: 1, FailureThreshold: 3}),
					})
					m.AddPod(pod)
					n.set("u1", "1", runtime.ContainerRunning, time.Now())
					m.Notify("u1")
					time.Sleep(3 * time.Second)
					kinds := map[runtime.ProbeKind]bool{}
					for range 2 {
						r := <-m.Results()
						kinds[r.Kind] = r.Healthy
					}
					assert.Equal(t, map[runtime.ProbeKind]bool{runtime.ReadinessProbe: true,
						runtime.LivenessProbe: false}, kinds)
					assert.Equal(t, 3*time.Second, time.Since(n.start))
					m.RemovePod(pod)
					cancel()
					run.Wait()
					assert.LessOrEqual(t, time.Since(n.start), 6*time.Second)
				})
			})
		}
	}
}

// An observer that is called directly may call the prober: no lock is held.
func TestObserverCallsTheProber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *prober.Prober
		var mu sync.Mutex
		seen := map[string]int{}
		all := func(what any) {
			mu.Lock()
			seen[fmt.Sprintf("%T", what)]++
			mu.Unlock()
			m.Ready(id("1"))
			m.Cleanup(func(types.UID) bool { return true })
		}
		n := newNode()
		m, err := prober.New(n, n, prober.Options{Observer: runtime.Observer{NonBlocking: true,
			Event: func(e runtime.Event) { all(e) }, Record: func(r runtime.Record) { all(r) },
			Measure: func(v runtime.Measurement) { all(v) }}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { assert.NoError(t, m.Run(ctx)) })
		n.on("fails", 1)
		pod := podWith(v1.Container{ReadinessProbe: exec("ready", v1.Probe{PeriodSeconds: 1}),
			LivenessProbe: exec("fails", v1.Probe{PeriodSeconds: 1, FailureThreshold: 3})})
		m.AddPod(pod)
		n.set("u1", "1", runtime.ContainerRunning, time.Now())
		m.Notify("u1")
		time.Sleep(3 * time.Second)
		m.RemovePod(pod)
		synctest.Wait()
		cancel()
		run.Wait()
		assert.Equal(t, 2, seen["prober.ProbeRemoved"])
		assert.Positive(t, seen["prober.Attempt"])
		assert.Positive(t, seen["runtime.Event"])
		assert.Positive(t, seen["runtime.Record"])
	})
}
