package podworkers_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Observers that block for ever, or panic, hold up no pod, and not the end of Run.
func TestObserversHoldUpNothing(t *testing.T) {
	for _, fault := range []string{"block", "panic"} {
		for _, observer := range []string{"Event", "Record", "Measure"} {
			t.Run(observer+" "+fault, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broken := testenv.BrokenObserver(t, fault == "panic")
					opts := podworkers.Options{}
					switch observer {
					case "Event":
						opts.Event = func(runtime.Event) { broken() }
					case "Record":
						opts.Record = func(runtime.Record) { broken() }
					case "Measure":
						opts.Measure = func(runtime.Measurement) { broken() }
					}
					n := &fakeNode{start: time.Now(), running: map[types.UID]bool{}, busy: map[types.UID]bool{}}
					n.cache = runtime.NewCache(n, runtime.CacheOptions{})
					n.sync = func(_ context.Context, _ podworkers.UpdateType, pod *v1.Pod) (podworkers.Result, error) {
						if pod.UID == "bad" {
							return podworkers.Result{}, &runtime.TerminalError{Reason: "Denied", Message: "no"}
						}
						return podworkers.Result{}, nil
					}
					w, err := podworkers.New(n, n.cache, opts)
					assert.NoError(t, err)
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan error, 1)
					go func() { done <- w.Run(ctx) }()
					w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: staticPod("bad", "bad")})
					// with an event
					w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: staticPod("waits", "bad")})
					synctest.Wait()
					for i := range 50 {
						w.UpdatePod(podworkers.Update{Type: podworkers.Create,
							Pod: apiPod(types.UID(fmt.Sprint(i)), fmt.Sprint(i))})
					}
					synctest.Wait()
					for i := range 50 {
						w.UpdatePod(killIn(apiPod(types.UID(fmt.Sprint(i)), fmt.Sprint(i)), 1))
					}
					synctest.Wait()
					assert.True(t, w.State("bad").Finished)
					assert.Equal(t, podworkers.PhaseSync, w.State("waits").Phase)
					for i := range 50 {
						assert.True(t, w.State(types.UID(fmt.Sprint(i))).Finished)
					}
					assert.Zero(t, time.Since(n.start), "no call waits")
					w.SyncKnownPods(nil)
					cancel()
					assert.NoError(t, <-done)
					assert.LessOrEqual(t, time.Since(n.start), 3*time.Second)
				})
			})
		}
	}
}

// The call of what a record has decided begins after the record, if Record never blocks.
func TestRecordsComeFirst(t *testing.T) {
	var order []string
	opts := podworkers.Options{Observer: runtime.Observer{NonBlocking: true, Record: func(r runtime.Record) {
		if r.Stage == runtime.StageDecided {
			order = append(order, string(r.Kind))
		}
	}}}
	inBubble(t, opts, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		n.terminating = func(context.Context, *v1.Pod, podworkers.Termination) error {
			order = append(order, "SyncTerminatingPod")
			return nil
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("u", "p")})
		n.took()
		w.UpdatePod(killIn(apiPod("u", "p"), 1))
		n.took()
		assert.Equal(t, []string{"StopPod", "SyncTerminatingPod"}, order)
	})
}
