package podworkers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// TestHammer lets many goroutines update few pods, in real time and under -race.
func TestHammer(t *testing.T) {
	n := &fakeNode{start: time.Now(), running: map[types.UID]bool{}, busy: map[types.UID]bool{}}
	var began atomic.Int64
	n.sync = func(context.Context, podworkers.UpdateType, *v1.Pod) (podworkers.Result, error) {
		began.Add(1)
		return podworkers.Result{Changed: rand.IntN(3) == 0, Terminal: rand.IntN(20) == 0}, nil
	}
	w, err := podworkers.New(n, runtime.NewCache(n, runtime.CacheOptions{}),
		podworkers.Options{ResyncInterval: time.Millisecond, BackoffBase: time.Microsecond,
			BackoffPeriod: time.Millisecond})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var run, users sync.WaitGroup
	run.Go(func() { assert.NoError(t, w.Run(ctx)) })

	var asked, done atomic.Int64
	names := []string{"p", "q"}
	for range 4 {
		users.Go(func() {
			for range 2000 {
				uid := types.UID(fmt.Sprintf("u%d", rand.IntN(8)))
				pod := staticPod(uid, names[rand.IntN(2)])
				switch rand.IntN(6) {
				case 0:
					asked.Add(1)
					w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod,
						Kill: &podworkers.KillOptions{Done: func() { done.Add(1) }}})
				case 1:
					asked.Add(1)
					w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Orphan: orphan(uid, pod.Name),
						Kill: &podworkers.KillOptions{Done: func() { done.Add(1) }}})
				case 2:
					w.SyncKnownPods([]*v1.Pod{pod})
				case 3:
					w.State(uid)
				default:
					w.UpdatePod(podworkers.Update{Type: podworkers.UpdateType(1 + rand.IntN(3)), Pod: pod})
				}
			}
		})
	}
	users.Wait()
	require.Eventually(t, func() bool { return len(w.SyncKnownPods(nil)) == 0 }, time.Minute, time.Millisecond)
	cancel()
	run.Wait()
	assert.Equal(t, asked.Load(), done.Load(), "each kill is answered once")
	assert.Positive(t, began.Load())
	assert.NotContains(t, n.trace, "two calls at once")
	assert.Zero(t, w.Leftovers())
}

func TestHousekeepingLeavesDesiredPodsAlone(t *testing.T) {
	inBubble(t, podworkers.Options{ResyncInterval: time.Minute}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		pod := apiPod("u", "p")
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
		desired := []*v1.Pod{pod}
		for range 91 / 2 { // as the loop does, until the longest resync interval is over
			time.Sleep(2 * time.Second)
			assert.False(t, w.SyncKnownPods(desired)["u"].Orphan)
		}
		time.Sleep(time.Second)
		assert.Len(t, n.took(), 2, "create, and one resync")

		n.terminating = func(ctx context.Context, _ *v1.Pod,
			_ podworkers.Termination) error {
			return after(time.Hour)(ctx)
		}
		assert.True(t, w.SyncKnownPods(nil)["u"].Orphan)
		synctest.Wait()
		assert.False(t, w.SyncKnownPods(desired)["u"].Orphan, "it is named again, and still has to end")
		assert.Equal(t, podworkers.PhaseTerminating, w.State("u").Phase)
		time.Sleep(2 * time.Hour)
		assert.True(t, w.State("u").Finished)
	})
}

// BenchmarkSyncKnownPods is the housekeeping of 100 pods that are in order.
func BenchmarkSyncKnownPods(b *testing.B) {
	const pods = 100
	n := &fakeNode{start: time.Now(), running: map[types.UID]bool{}, busy: map[types.UID]bool{}}
	var synced sync.WaitGroup
	synced.Add(pods)
	w, err := podworkers.New(n, runtime.NewCache(n, runtime.CacheOptions{}), podworkers.Options{ResyncInterval: -1,
		OnEnd: func(runtime.PodRef) { synced.Done() }})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = w.Run(ctx) })
	desired := make([]*v1.Pod, pods)
	for i := range desired {
		desired[i] = apiPod(types.UID(fmt.Sprintf("u%d", i)), fmt.Sprintf("p%d", i))
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: desired[i]})
	}
	synced.Wait()
	b.ReportAllocs()
	for b.Loop() {
		if len(w.SyncKnownPods(desired)) != pods {
			b.Fatal("a pod is missing")
		}
	}
	cancel()
	run.Wait()
}
