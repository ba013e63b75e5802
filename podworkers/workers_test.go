package podworkers_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/history/fake"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
)

var _ podworkers.StatusCache = (*runtime.Cache)(nil)

// fakeNode is a PodSyncer and an Inspector at once. Pods are absent until their
// first sync, and run until they are terminated.
type fakeNode struct {
	mu      sync.Mutex
	start   time.Time
	trace   []string
	running map[types.UID]bool
	busy    map[types.UID]bool // has a call under way
	reads   int
	cache   *runtime.Cache

	// The outcomes of calls; nil: they succeed at once.
	sync        func(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod) (podworkers.Result, error)
	terminating func(ctx context.Context, pod *v1.Pod, t podworkers.Termination) error
	orphan      func(ctx context.Context) error
	terminated  func(ctx context.Context) error
}

func (n *fakeNode) InspectPod(_ context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	s := &runtime.PodStatus{PodRef: ref}
	if n.running[ref.UID] {
		s.Containers = []runtime.ContainerStatus{{Container: runtime.Container{Name: "c", State: runtime.ContainerRunning}}}
	}
	return s, nil
}

// call notes the call, and that the pod runs or not when it has succeeded.
func (n *fakeNode) call(uid types.UID, what string, runs bool, f func() error) error {
	n.mu.Lock()
	n.trace = append(n.trace, fmt.Sprintf("%v %s %s", time.Since(n.start), what, uid))
	if n.busy[uid] {
		n.trace = append(n.trace, "two calls at once")
	}
	n.busy[uid] = true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.busy, uid)
	}()
	err := f()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.running[uid] = runs
	} else {
		n.trace = append(n.trace, fmt.Sprintf("%v %s", time.Since(n.start), err))
	}
	return err
}

func (n *fakeNode) SyncPod(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod, _ *runtime.PodStatus) (r podworkers.Result, err error) {
	err = n.call(pod.UID, typ.String(), true, func() error {
		if n.sync != nil {
			r, err = n.sync(ctx, typ, pod)
		}
		return err
	})
	return r, err
}

func (n *fakeNode) SyncTerminatingPod(ctx context.Context, pod *v1.Pod, _ *runtime.PodStatus, t podworkers.Termination) error {
	return n.call(pod.UID, fmt.Sprintf("terminating(%d)", *t.GracePeriod), false, func() error {
		if n.terminating == nil {
			return nil
		}
		return n.terminating(ctx, pod, t)
	})
}

func (n *fakeNode) SyncTerminatingOrphan(ctx context.Context, pod *runtime.Pod, _ *runtime.PodStatus, _ *int64) error {
	return n.call(pod.UID, "orphan", false, func() error {
		if n.orphan == nil {
			return nil
		}
		return n.orphan(ctx)
	})
}

func (n *fakeNode) SyncTerminatedPod(ctx context.Context, pod *v1.Pod, _ *runtime.PodStatus) error {
	return n.call(pod.UID, "terminated", false, func() error {
		if n.terminated == nil {
			return nil
		}
		return n.terminated(ctx)
	})
}

// took returns the calls since it was last called, with the virtual time
// at which they began.
func (n *fakeNode) took() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	trace := n.trace
	n.trace = nil
	return trace
}

// blocked waits for the end of the context, as a call does that hangs in the runtime.
func blocked(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// after succeeds after a time, unless the context ends before.
func after(d time.Duration) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(d):
			return nil
		}
	}
}

// apiPod is a pod from an API server, with a grace period of 30 s.
func apiPod(uid types.UID, name string) *v1.Pod {
	return testpod.New(name, testpod.UID(uid), testpod.Grace(30))
}

// staticPod is a pod from a file.
func staticPod(uid types.UID, name string) *v1.Pod {
	return testpod.With(apiPod(uid, name), testpod.Static)
}

func orphan(uid types.UID, name string) *runtime.Pod {
	return &runtime.Pod{PodRef: runtime.RefOf(apiPod(uid, name))}
}

func killIn(pod *v1.Pod, grace int64) podworkers.Update {
	return podworkers.Update{Type: podworkers.Kill, Pod: pod, Kill: &podworkers.KillOptions{GracePeriod: &grace}}
}

// inBubble runs the test in virtual time, with workers that run and by default
// never resync. It ends with nothing left of them.
func inBubble(t *testing.T, opts podworkers.Options, test func(t *testing.T, n *fakeNode, w *podworkers.Workers)) {
	t.Helper()
	wrapped(t, opts, func(n *fakeNode) (podworkers.PodSyncer, podworkers.StatusCache) { return n, n.cache }, test)
}

// wrapped is inBubble with a PodSyncer and a cache that the test makes.
func wrapped(t *testing.T, opts podworkers.Options, wrap func(n *fakeNode) (podworkers.PodSyncer, podworkers.StatusCache), test func(t *testing.T, n *fakeNode, w *podworkers.Workers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNode{start: time.Now(), running: map[types.UID]bool{}, busy: map[types.UID]bool{}}
		if opts.ResyncInterval == 0 {
			opts.ResyncInterval = -1
		}
		n.cache = runtime.NewCache(n, runtime.CacheOptions{})
		syncer, cache := wrap(n)
		w, err := podworkers.New(syncer, cache, opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { assert.NoError(t, w.Run(ctx)) })
		synctest.Wait()
		test(t, n, w)
		cancel()
		run.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		assert.Empty(t, n.busy, "a call was left")
	})
}

func TestLifeOfAPod(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
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
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod, Kill: &podworkers.KillOptions{Done: func() { done = time.Now() }}})
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
	inBubble(t, podworkers.Options{ResyncInterval: time.Minute}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
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
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
		results := []any{podworkers.Result{Changed: true}, podworkers.Result{RetryAfter: 5 * time.Second}, errors.New("no"), podworkers.Result{}}
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
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
		n.sync = func(ctx context.Context, _ podworkers.UpdateType, _ *v1.Pod) (podworkers.Result, error) {
			return podworkers.Result{}, blocked(ctx)
		}
		pod := apiPod("u", "p")
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
		time.Sleep(time.Second)
		w.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: pod})
		assert.Equal(t, []string{"0s create u"}, n.took(), "an update cancels nothing")
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod})
		assert.Equal(t, []string{"1s " + podworkers.ErrTerminating.Error(), "1s terminating(30) u", "1s terminated u"}, n.took())
	})
}

func TestUndesiredCancelsSync(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
		n.sync = func(ctx context.Context, _ podworkers.UpdateType, _ *v1.Pod) (podworkers.Result, error) {
			return podworkers.Result{}, blocked(ctx)
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("u", "p")})
		n.took()
		states := w.SyncKnownPods(nil)
		assert.True(t, states["u"].Orphan)
		assert.Equal(t, []string{"0s " + podworkers.ErrTerminating.Error(), "0s terminating(30) u", "0s terminated u"}, n.took())
		assert.Empty(t, w.SyncKnownPods(nil))
	})
}

func TestSecondKillShortens(t *testing.T) {
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
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
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
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
	opts := podworkers.Options{Event: func(e runtime.Event) { events = append(events, string(e.Pod.UID)+" "+e.Reason+": "+e.Message) }}
	inBubble(t, opts, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
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
		assert.Equal(t, []string{"0s terminating(30) a", "0s terminated b", "5s terminated a", "5s create c"}, sorted(n.took()))
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
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
		n.orphan = after(3 * time.Second)
		done := 0
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Orphan: orphan("u", "p"), Kill: &podworkers.KillOptions{Done: func() { done++ }}})
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
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
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

func TestPanicIsAFailedCall(t *testing.T) {
	var mu sync.Mutex
	var logs []string
	log := funcr.New(func(_, args string) { mu.Lock(); logs = append(logs, args); mu.Unlock() }, funcr.Options{})
	var begun, ended, finished []types.UID
	add := func(list *[]types.UID) func(runtime.PodRef) {
		return func(ref runtime.PodRef) { mu.Lock(); *list = append(*list, ref.UID); mu.Unlock() }
	}
	var measured recorder
	var past fake.History
	inBubble(t, podworkers.Options{Logger: log, Record: past.Record, OnBegin: add(&begun), OnEnd: add(&ended), OnFinished: add(&finished), Metrics: &measured}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
		bad := true
		n.sync = func(_ context.Context, _ podworkers.UpdateType, pod *v1.Pod) (podworkers.Result, error) {
			if pod.UID == "bad" && bad {
				bad = false
				panic("boom")
			}
			return podworkers.Result{}, nil
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("bad", "bad"), Received: time.Now()})
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("good", "good")})
		assert.ElementsMatch(t, []string{"0s create bad", "0s create good"}, n.took())
		assert.Equal(t, podworkers.PhaseSync, w.State("bad").Phase)
		time.Sleep(time.Minute)
		again := n.took()
		require.Len(t, again, 1)
		assert.Regexp(t, `^1\.\d+s sync bad$`, again[0])
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: apiPod("bad", "bad"), Kill: &podworkers.KillOptions{Done: func() { panic("boom") }}})
		assert.Len(t, n.took(), 2)
	})
	failed := past.Records("bad", runtime.KindSync)
	assert.Equal(t, []runtime.Record{{Stage: runtime.StageDone, Kind: runtime.KindSync, Reason: "sync", Error: "panic: boom"}}, failed)
	require.Len(t, logs, 2)
	assert.Contains(t, logs[0], "default/bad(bad)")
	assert.Contains(t, logs[0], "workers_test.go")
	assert.Contains(t, logs[1], `"callback"="Done"`)
	calls := measured.calls
	require.Len(t, calls, 5)
	var called []types.UID
	for _, c := range calls {
		called = append(called, c.Pod.UID)
	}
	assert.ElementsMatch(t, called, begun)
	assert.ElementsMatch(t, called, ended)
	assert.Equal(t, []types.UID{"bad"}, finished)
	for _, c := range calls[:2] {
		if c.Pod.UID == "bad" {
			assert.ErrorContains(t, c.Err, "boom")
			assert.ErrorAs(t, c.Err, new(*runtime.PanicError))
			assert.Equal(t, podworkers.Create, c.Type)
			assert.InDelta(t, 1.25, c.Backoff.Seconds(), 0.25)
			assert.False(t, c.Received.IsZero())
		}
	}
}

// recorder keeps what is measured.
type recorder struct {
	podworkers.NopMetrics
	mu      sync.Mutex
	calls   []podworkers.Call
	counted []map[podworkers.PodKind]int
}

func (r *recorder) Called(c podworkers.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
}

func (r *recorder) Counted(pods map[podworkers.PodKind]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counted = append(r.counted, pods)
}

func TestMetrics(t *testing.T) {
	var m recorder
	inBubble(t, podworkers.Options{Metrics: &m}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
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
		assert.Equal(t, []map[podworkers.PodKind]int{{
			{Phase: podworkers.PhaseSync, HasConfig: true, Static: true}: 1,
			{Phase: podworkers.PhaseTerminating, Orphan: true}:           1,
		}}, m.counted)
	})
}

// denying is a wrapper around a PodSyncer that refuses pods for good.
type denying struct {
	podworkers.PodSyncer
	denied map[types.UID]bool
}

func (d denying) SyncPod(ctx context.Context, typ podworkers.UpdateType, pod *v1.Pod, status *runtime.PodStatus) (podworkers.Result, error) {
	if d.denied[pod.UID] {
		return podworkers.Result{}, fmt.Errorf("pod %s: %w", pod.Name, &runtime.TerminalError{Reason: "Denied", Message: "privileged"})
	}
	return d.PodSyncer.SyncPod(ctx, typ, pod, status)
}

func TestFailureForGood(t *testing.T) {
	var events []runtime.Event
	var past fake.History
	var m recorder
	opts := podworkers.Options{Record: past.Record, Metrics: &m, Event: func(e runtime.Event) {
		if e.Pod.UID == "bad" { // that the other one waits is an event of another goroutine
			events = append(events, e)
		}
	}}
	deny := func(n *fakeNode) (podworkers.PodSyncer, podworkers.StatusCache) {
		return denying{n, map[types.UID]bool{"bad": true}}, n.cache
	}
	wrapped(t, opts, deny, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
		var final v1.PodStatus
		n.terminating = func(_ context.Context, _ *v1.Pod, term podworkers.Termination) error {
			term.Status(&final)
			return nil
		}
		bad := staticPod("bad", "p")
		good := staticPod("good", "p") // starts when the other has finished
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: bad})
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: good})
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"0s terminating(30) bad", "0s terminated bad", "0s create good"}, n.took())
		assert.Equal(t, v1.PodStatus{Phase: v1.PodFailed, Reason: "Denied", Message: "privileged"}, final)
		s := w.SyncKnownPods([]*v1.Pod{bad, good})["bad"]
		assert.Equal(t, &runtime.TerminalError{Reason: "Denied", Message: "privileged"}, s.Failure)
		assert.True(t, s.Finished)
		assert.Equal(t, []runtime.Event{{Pod: runtime.RefOf(bad), Type: v1.EventTypeWarning, Reason: "Denied", Message: "privileged"}}, events)
		var history []string
		for _, e := range past.Entries("bad") {
			history = append(history, strings.Join(strings.Fields(fmt.Sprint(e.Stage, " ", e.Kind, " ", e.Reason, " ", e.Message, " ", e.Duration)), " "))
		}
		assert.Equal(t, []string{"Decided Fail Denied privileged 0s", "Decided StopPod Failed 30s", "Done StopPod 0s"}, history)
		var failures []*runtime.TerminalError
		for _, c := range m.calls {
			if c.Failure != nil {
				failures = append(failures, c.Failure)
				assert.ErrorIs(t, c.Err, c.Failure)
			}
		}
		assert.Equal(t, []*runtime.TerminalError{s.Failure}, failures)
	})
}

// The Status of a kill is a function of the caller. It may call the workers, as the calls of
// the syncer may, also if its reason is to be recorded.
func TestTheStatusOfAKillMayCallTheWorkers(t *testing.T) {
	var past fake.History
	n := &fakeNode{start: time.Now(), running: map[types.UID]bool{}, busy: map[types.UID]bool{}}
	n.cache = runtime.NewCache(n, runtime.CacheOptions{})
	w, err := podworkers.New(n, n.cache, podworkers.Options{Record: past.Record})
	require.NoError(t, err)
	pod := apiPod("u", "p")
	w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
	updated := make(chan struct{})
	go func() {
		defer close(updated)
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod, Kill: &podworkers.KillOptions{Status: func(s *v1.PodStatus) {
			s.Reason, s.Message = "Shutdown", fmt.Sprint(w.State("u").Known())
		}}})
	}()
	select {
	case <-updated:
	case <-time.After(10 * time.Second): // only in a failure
		t.Fatal("UpdatePod calls the Status of a kill with a lock held")
	}
	failed := past.Records("p", runtime.KindFail)
	require.Len(t, failed, 1)
	assert.Equal(t, "Shutdown true", failed[0].Reason+" "+failed[0].Message)
}

// A line about a failed call has the pod as a key, and not in the text of its error too.
func TestAFailedCallNamesThePodOnce(t *testing.T) {
	var mu sync.Mutex
	var logs []string
	log := funcr.New(func(_, args string) { mu.Lock(); defer mu.Unlock(); logs = append(logs, args) }, funcr.Options{})
	inBubble(t, podworkers.Options{Logger: log}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
		pod := apiPod("u", "web")
		ref := runtime.RefOf(pod).String()
		n.sync = func(context.Context, podworkers.UpdateType, *v1.Pod) (podworkers.Result, error) {
			return podworkers.Result{}, fmt.Errorf("pod %s: setting up its volumes: volume %q of pod %s: no space", ref, "data", ref)
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
		time.Sleep(time.Millisecond)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, logs, 1)
		assert.Contains(t, logs[0], `"error"="setting up its volumes: volume \"data\": no space"`)
		assert.Equal(t, 1, strings.Count(logs[0], ref), logs[0])
	})
}

func TestAnUnreadableStatusIsAnEvent(t *testing.T) {
	var events []runtime.Event
	opts := podworkers.Options{Event: func(e runtime.Event) { events = append(events, e); panic("boom") }}
	hide := func(n *fakeNode) (podworkers.PodSyncer, podworkers.StatusCache) { return n, unreadable{n.cache} }
	wrapped(t, opts, hide, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: apiPod("u", "p")})
		assert.Empty(t, n.took())
		require.Len(t, events, 1)
		assert.Equal(t, "FailedSync", events[0].Reason)
		assert.Equal(t, "error determining status: away", events[0].Message)
	})
}

type unreadable struct{ podworkers.StatusCache }

func (unreadable) Newer(context.Context, runtime.PodRef, runtime.Mark) (*runtime.PodStatus, error) {
	return nil, errors.New("away")
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
		assert.ElementsMatch(t, []string{"0s create a", "0s terminating(30) b", "0s terminated b", "0s terminated c"}, n.took())
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
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
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
	inBubble(t, podworkers.Options{}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
		done := false
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Kill: &podworkers.KillOptions{Done: func() { done = true }}})
		assert.True(t, done)
		assert.Empty(t, n.took())
	})
}

func TestNew(t *testing.T) {
	_, err := podworkers.New(nil, nil, podworkers.Options{BackoffBase: time.Minute})
	for _, want := range []string{"PodSyncer", "StatusCache", "BackoffBase 1m0s and BackoffPeriod 10s"} {
		assert.ErrorContains(t, err, want)
	}
}

// TestHammer lets many goroutines update few pods, in real time and under -race.
func TestHammer(t *testing.T) {
	n := &fakeNode{start: time.Now(), running: map[types.UID]bool{}, busy: map[types.UID]bool{}}
	var began atomic.Int64
	n.sync = func(context.Context, podworkers.UpdateType, *v1.Pod) (podworkers.Result, error) {
		began.Add(1)
		return podworkers.Result{Changed: rand.IntN(3) == 0, Terminal: rand.IntN(20) == 0}, nil
	}
	w, err := podworkers.New(n, runtime.NewCache(n, runtime.CacheOptions{}), podworkers.Options{ResyncInterval: time.Millisecond, BackoffBase: time.Microsecond, BackoffPeriod: time.Millisecond})
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
					w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod, Kill: &podworkers.KillOptions{Done: func() { done.Add(1) }}})
				case 1:
					asked.Add(1)
					w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Orphan: orphan(uid, pod.Name), Kill: &podworkers.KillOptions{Done: func() { done.Add(1) }}})
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
	require.Eventually(t, func() bool { return len(w.SyncKnownPods(nil)) == 0 }, 10*time.Second, time.Millisecond)
	cancel()
	run.Wait()
	assert.Equal(t, asked.Load(), done.Load(), "each kill is answered once")
	assert.Positive(t, began.Load())
	assert.NotContains(t, n.trace, "two calls at once")
	assert.Zero(t, w.Leftovers())
}

func TestHousekeepingLeavesDesiredPodsAlone(t *testing.T) {
	inBubble(t, podworkers.Options{ResyncInterval: time.Minute}, func(t *testing.T, n *fakeNode, w *podworkers.Workers) {
		pod := apiPod("u", "p")
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
		desired := []*v1.Pod{pod}
		for range 91 / 2 { // as the loop does, until the longest resync interval is over
			time.Sleep(2 * time.Second)
			assert.False(t, w.SyncKnownPods(desired)["u"].Orphan)
		}
		time.Sleep(time.Second)
		assert.Len(t, n.took(), 2, "create, and one resync")

		n.terminating = func(ctx context.Context, _ *v1.Pod, _ podworkers.Termination) error { return after(time.Hour)(ctx) }
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
	w, err := podworkers.New(n, runtime.NewCache(n, runtime.CacheOptions{}), podworkers.Options{ResyncInterval: -1, OnEnd: func(runtime.PodRef) { synced.Done() }})
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
