package podworkers_test

import (
	"context"
	"errors"
	"sync"
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

func TestLifeOfAPod(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		pod := apiPod("u", "p")
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
		assert.Equal(t, []string{"0s create u"}, n.took())
		assert.False(t, w.State("u").Synced)
		assert.Equal(t, podworkers.PhaseSync, w.SyncKnownPods([]*v1.Pod{pod})["u"].Phase)

		time.Sleep(time.Hour)
		assert.Empty(t, n.took(), "an idle pod costs nothing")
		assert.Zero(t, w.Leftovers())

		n.terminating = func(ctx context.Context, _ *v1.Pod, _ podworkers.Termination) error {
			return after(3 * time.Second)(ctx)
		}
		var done time.Time
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod,
			Kill: &podworkers.KillOptions{Done: func() { done = time.Now() }}})
		synctest.Wait()
		assert.Equal(t, podworkers.PhaseTerminating, w.State("u").Phase)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"1h0m0s terminating(30) u", "1h0m3s terminated u"}, n.took())
		assert.Equal(t, n.start.Add(time.Hour+3*time.Second), done)
		assert.True(t, w.State("u").Finished)
		assert.Len(t, w.SyncKnownPods([]*v1.Pod{pod}), 1)
		assert.Empty(t, w.SyncKnownPods(nil))
		assert.False(t, w.State("u").Known())
		assert.True(t, w.State("u").Synced, "so that all that was kept for it may be removed")
	})
}

func TestResync(t *testing.T) {
	inBubble(t, podworkers.Options{ResyncInterval: time.Minute}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		n.sync = func(_ context.Context, typ podworkers.UpdateType, _ *v1.Pod) (podworkers.Result, error) {
			return podworkers.Result{Changed: typ == podworkers.Create}, nil
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("u", "p")})
		time.Sleep(time.Hour)
		calls := n.took()
		assert.GreaterOrEqual(t, len(calls), 40, "once in 60 to 90 s")
		assert.LessOrEqual(t, len(calls), 62)
		assert.Equal(t, 2, n.reads, "a sync that changes nothing needs no new status")
	})
}

func TestRetries(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		results := []any{podworkers.Result{Changed: true}, podworkers.Result{RetryAfter: 5 * time.Second},
			errors.New("no"), podworkers.Result{}}
		n.sync = func(context.Context, podworkers.UpdateType, *v1.Pod) (podworkers.Result, error) {
			next := results[0]
			results = results[1:]
			if err, ok := next.(error); ok {
				return podworkers.Result{}, err
			}
			return next.(podworkers.Result), nil
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("u", "p")})
		time.Sleep(time.Minute)
		calls := n.took()
		require.Len(t, calls, 5)
		assert.Equal(t, []string{"0s create u", "0s sync u", "5s sync u", "5s no"}, calls[:4])
		assert.Regexp(t, `^6\.\d+s sync u$`, calls[4])
		assert.Equal(t, 3, n.reads, "at first, after the change and after the error")
	})
}

func TestKillCancelsSync(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		n.sync = func(ctx context.Context, _ podworkers.UpdateType, _ *v1.Pod) (podworkers.Result, error) {
			return podworkers.Result{}, blocked(ctx)
		}
		pod := apiPod("u", "p")
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
		time.Sleep(time.Second)
		w.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: pod})
		assert.Equal(t, []string{"0s create u"}, n.took(), "an update cancels nothing")
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod})
		assert.Equal(t, []string{"1s " + podworkers.ErrTerminating.Error(), "1s terminating(30) u", "1s terminated u"},
			n.took())
	})
}

func TestUndesiredCancelsSync(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		n.sync = func(ctx context.Context, _ podworkers.UpdateType, _ *v1.Pod) (podworkers.Result, error) {
			return podworkers.Result{}, blocked(ctx)
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("u", "p")})
		n.took()
		states := w.SyncKnownPods(nil)
		assert.True(t, states["u"].Orphan)
		assert.Equal(t, []string{"0s " + podworkers.ErrTerminating.Error(), "0s terminating(30) u", "0s terminated u"},
			n.took())
		assert.Empty(t, w.SyncKnownPods(nil))
	})
}

func TestSecondKillShortens(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		n.terminating = func(ctx context.Context, _ *v1.Pod, term podworkers.Termination) error {
			return after(time.Duration(*term.GracePeriod) * time.Second)(ctx)
		}
		pod, done := apiPod("u", "p"), 0
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
		kill := func(grace int64) {
			u := killIn(pod, grace)
			u.Kill.Done = func() { done++ }
			w.UpdatePod(u)
		}
		synctest.Wait()
		kill(30)
		time.Sleep(10 * time.Second)
		kill(60)
		kill(25)
		kill(2)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{
			"0s create u", "0s terminating(30) u",
			"10s " + podworkers.ErrShortened.Error(), "10s terminating(2) u",
			"12s terminated u",
		}, n.took())
		assert.Equal(t, 4, done)
	})
}

func TestSameUIDAgain(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		n.terminating = func(ctx context.Context, _ *v1.Pod, _ podworkers.Termination) error {
			return after(5 * time.Second)(ctx)
		}
		n.terminated = after(time.Second)
		pod := staticPod("u", "p")
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
		synctest.Wait()
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod})
		time.Sleep(time.Second)
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
		s := w.State("u")
		assert.True(t, s.RestartRequested)
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"0s create u", "0s terminating(30) u", "5s terminated u", "6s create u"}, n.took())
		assert.False(t, w.State("u").TerminationRequested())
	})
}

func TestSameFullName(t *testing.T) {
	var events []string
	opts := podworkers.Options{
		Observer: runtime.Observer{
			Event: func(e runtime.Event) { events = append(events, string(e.Pod.UID)+" "+e.Reason+": "+e.Message) }}}
	inBubble(t, opts, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		n.terminating = func(ctx context.Context, _ *v1.Pod, _ podworkers.Termination) error {
			return after(5 * time.Second)(ctx)
		}
		a, b, c, d := staticPod("a", "p"), staticPod("b", "p"), staticPod("c", "p"), staticPod("d", "p")
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: a})
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("api", "p")})
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: staticPod("q", "q")})
		assert.ElementsMatch(t, []string{"0s create a", "0s create api", "0s create q"}, n.took())
		for _, pod := range []*v1.Pod{b, c, d} { // a manifest that is edited quickly
			w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: a})
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: b})
		synctest.Wait()
		assert.True(t, w.State("c").Waiting)
		assert.Equal(t, []string{
			"b WaitingForPredecessor: Pod starts when pod default/p(a), which has the same name, has ended",
			"c WaitingForPredecessor: Pod starts when pod default/p(a), which has the same name, has ended",
			"d WaitingForPredecessor: Pod starts when pod default/p(a), which has the same name, has ended",
		}, events)
		before, ok := w.Predecessor("c")
		assert.True(t, ok)
		assert.Equal(t, runtime.RefOf(a), before)
		for _, uid := range []types.UID{"a", "b", "api", "unknown"} {
			_, ok := w.Predecessor(uid)
			assert.False(t, ok, uid)
		}
		assert.True(t, w.TerminatingByFullName("p_default"))
		assert.True(t, w.State("b").Finished, "nothing of it was there")
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"0s terminating(30) a", "0s terminated b", "5s terminated a", "5s create c"},
			sorted(n.took()))
		assert.True(t, w.State("d").Waiting)
		assert.False(t, w.TerminatingByFullName("p_default"))
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: c})
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"1h0m0s terminating(30) c", "1h0m5s terminated c", "1h0m5s create d"}, n.took())
	})
}

// sorted puts the two calls that begin at the same time in a fixed order.
func sorted(trace []string) []string {
	if len(trace) > 1 && trace[0] == "0s terminated b" {
		trace[0], trace[1] = trace[1], trace[0]
	}
	return trace
}

func TestOrphan(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		n.orphan = after(3 * time.Second)
		done := 0
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Orphan: orphan("u", "p"),
			Kill: &podworkers.KillOptions{Done: func() { done++ }}})
		synctest.Wait()
		assert.True(t, w.State("u").Orphan)
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("u", "p")})
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Orphan: orphan("o", "o")})
		time.Sleep(time.Hour)
		assert.ElementsMatch(t, []string{"0s orphan u", "0s orphan o", "3s create u"}, n.took())
		assert.Equal(t, 1, done)
		assert.False(t, w.State("o").Known())
		assert.Equal(t, podworkers.PhaseSync, w.State("u").Phase)
	})
}

// A pod that is not in the last list needs no read before its first sync. For an orphan or a
// kill, the pod may have been seen since.
func TestOnlyAPodThatBeginsIsBelievedAbsent(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		n.cache.Listed(nil, n.cache.Now())
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("u", "p")})
		assert.Equal(t, []string{"0s create u"}, n.took())
		assert.Equal(t, 0, n.reads)
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Orphan: orphan("o", "o")})
		assert.Equal(t, []string{"0s orphan o"}, n.took())
		assert.Equal(t, 1, n.reads)
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: apiPod("k", "k")})
		n.took()
		assert.Greater(t, n.reads, 1)
	})
}

// recorder keeps what is measured.
type recorder struct {
	mu      sync.Mutex
	calls   []podworkers.Call
	counted []podworkers.Counts
}

func (r *recorder) measure(v runtime.Measurement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch v := v.(type) {
	case podworkers.Call:
		r.calls = append(r.calls, v)
	case podworkers.Counts:
		r.counted = append(r.counted, v)
	}
}

func TestMetrics(t *testing.T) {
	var m recorder
	inBubble(t, podworkers.Options{Observer: runtime.Observer{Measure: m.measure}},
		func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
			n.sync = func(context.Context, podworkers.UpdateType, *v1.Pod) (podworkers.Result, error) {
				time.Sleep(3 * time.Second)
				return podworkers.Result{}, nil
			}
			n.orphan = after(time.Hour)
			web, received := staticPod("web", "web"), time.Now().Add(-time.Second)
			w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: web, Received: received})
			w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Orphan: orphan("old", "old")})
			time.Sleep(time.Minute)
			w.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: web})
			time.Sleep(time.Minute)
			assert.Len(t, w.SyncKnownPods([]*v1.Pod{web}), 2)
			synctest.Wait()
			require.Len(t, m.calls, 2)
			c := m.calls[0]
			assert.Equal(t, podworkers.Call{
				Pod: runtime.RefOf(web), Phase: podworkers.PhaseSync, Type: podworkers.Create,
				Received: received, Began: n.start, Ended: n.start.Add(3 * time.Second),
			}, c)
			assert.Equal(t, "create", c.Operation())
			assert.Equal(t, "update", m.calls[1].Operation(), "as kubelet calls it")
			assert.Zero(t, m.calls[1].Received)
			assert.Equal(t, "kill", podworkers.Call{Phase: podworkers.PhaseTerminating}.Operation())
			assert.Equal(t, "sync", podworkers.Call{Phase: podworkers.PhaseSync, Type: podworkers.Sync}.Operation())
			assert.Equal(t, []podworkers.Counts{{
				{Phase: podworkers.PhaseSync, HasConfig: true, Static: true}: 1,
				{Phase: podworkers.PhaseTerminating, Orphan: true}:           1,
			}}, m.counted)
		})
}

func TestBeforeAndAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNode{start: time.Now(), running: map[types.UID]bool{"b": true}, busy: map[types.UID]bool{}}
		n.sync = func(ctx context.Context, _ podworkers.UpdateType, _ *v1.Pod) (podworkers.Result, error) {
			return podworkers.Result{}, blocked(ctx)
		}
		w, err := podworkers.New(n, runtime.NewCache(n, runtime.CacheOptions{}), podworkers.Options{})
		require.NoError(t, err)
		for _, uid := range []types.UID{"a", "b", "c"} {
			w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod(uid, string(uid))})
		}
		for _, uid := range []types.UID{"b", "c"} {
			w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: apiPod(uid, string(uid))})
		}
		assert.Equal(t, podworkers.PhaseSync, w.State("a").Phase)
		assert.Empty(t, n.took(), "nothing is done before Run")

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		assert.ElementsMatch(t, []string{"0s create a", "0s terminating(30) b", "0s terminated b", "0s terminated c"},
			n.took())
		assert.ErrorIs(t, w.Run(ctx), runtime.ErrAlreadyRunning)

		cancel()
		require.NoError(t, <-ended)
		assert.Equal(t, []string{"0s context canceled"}, n.took(), "it waited for the call")
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("d", "d")})
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: apiPod("a", "a")})
		time.Sleep(time.Hour)
		assert.Empty(t, n.took())
	})
}

func TestUpdatePodNeverBlocks(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		stuck := make(chan struct{})
		n.sync = func(context.Context, podworkers.UpdateType, *v1.Pod) (podworkers.Result, error) {
			<-stuck
			return podworkers.Result{}, nil
		}
		pod := apiPod("u", "p")
		for range 1000 {
			w.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: pod})
		}
		assert.Equal(t, []string{"0s create u"}, n.took())
		close(stuck)
		assert.Equal(t, []string{"0s change u"}, n.took(), "a thousand updates are one sync")
	})
}

func TestInvalidUpdate(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Pool) {
		done := false
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill,
			Kill: &podworkers.KillOptions{Done: func() { done = true }}})
		assert.True(t, done)
		assert.Empty(t, n.took())
	})
}

func TestNew(t *testing.T) {
	_, err := podworkers.New(nil, nil, podworkers.Options{BackoffBase: time.Minute})
	for _, want := range []string{"Syncer", "StatusCache", "BackoffBase 1m0s and BackoffPeriod 10s"} {
		assert.ErrorContains(t, err, want)
	}
}
