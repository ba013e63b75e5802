package status_test

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/status"
)

// everything calls all methods of the store from each callback, up to 40 times a second:
// callbacks cause callbacks.
type everything struct {
	store                   *status.Store
	calls, second, inSecond atomic.Int64
}

func (e *everything) all() {
	if e.store == nil {
		return
	}
	if now := time.Now().Unix(); e.second.Swap(now) != now {
		e.inSecond.Store(0)
	}
	if e.inSecond.Add(1) > 40 {
		return
	}
	n := e.calls.Add(1)
	other := named(types.UID(fmt.Sprintf("other%d", n%7)))
	e.store.Get(other.UID)
	e.store.Pods()
	e.store.Set(other, phased(v1.PodRunning, fmt.Sprint(n)))
	e.store.Set(other, phased(v1.PodFailed, fmt.Sprint(n)))
	e.store.Recheck()
	e.store.PodFinished(runtime.RefOf(other))
	e.store.Terminate(other)
	e.store.Forget(other.UID)
	e.store.PodEnded(runtime.RefOf(other))
	e.store.Prune(func(types.UID) bool { return true })
	_ = e.store.Healthy()
	if e.store.Run(context.Background()) == nil {
		panic("a second Run must fail")
	}
}

func (e *everything) Deliver(ctx context.Context, _ *v1.Pod, s v1.PodStatus) (status.Result, error) {
	e.all()
	switch s.Message {
	case "hang":
		<-ctx.Done()
		time.Sleep(time.Minute)
	case "later":
		return status.Result{Later: time.Second}, nil
	case "fail":
		return status.Result{}, errors.New("no connection")
	case "none":
		return status.Result{}, status.ErrGone
	}
	return status.Result{}, nil
}

func (e *everything) WatchReceiver(ctx context.Context, changed func(types.UID)) {
	for ctx.Err() == nil {
		e.all()
		changed("p1")
		time.Sleep(time.Second)
	}
}

func (e *everything) PodFinished(runtime.PodRef) { e.all() }

func (e *everything) PodGone(context.Context, runtime.PodRef, *v1.PodStatus) error {
	e.all()
	return nil
}

// No callback and no method of another part is called with the lock held, also if the observer is called directly.
func TestCallbacksCallEveryMethod(t *testing.T) {
	for _, direct := range []bool{false, true} {
		t.Run(fmt.Sprint("direct ", direct), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { callEverything(t, direct) })
		})
	}
}

func callEverything(t *testing.T, direct bool) {
	e := &everything{}
	m, err := status.New(status.Options{
		Sink: e, Observer: runtime.Observer{NonBlocking: direct, Measure: func(runtime.Measurement) { e.all() },
			Logger: funcr.New(func(string, string) { e.all() }, funcr.Options{Verbosity: 10})},
		DeliveryTimeout: 10 * time.Second,
		MayRun:          func(uid types.UID) bool { e.all(); return len(uid)%2 == 0 },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	synctest.Wait()
	e.store = m
	const pods = 30
	var wg sync.WaitGroup
	for i := range pods {
		wg.Go(func() {
			pod := named(types.UID(fmt.Sprintf("p%d", i)))
			m.Set(pod, phased(v1.PodPending, ""))
			m.Set(pod, phased(v1.PodRunning, []string{"", "hang", "later", "fail", "none"}[i%5]))
			time.Sleep(time.Minute)
			m.Set(pod, phased(v1.PodFailed, ""))
			time.Sleep(time.Minute)
			m.Terminate(pod)
			m.Forget(pod.UID)
		})
	}
	wg.Wait()
	m.Prune(func(types.UID) bool { e.all(); return false })
	time.Sleep(time.Minute)
	cancel()
	require.NoError(t, <-done)
	assert.Greater(t, e.calls.Load(), int64(5*pods))
}

// A Recheck while MayRun is under way counts, also if MayRun has read the older state.
func TestRecheckDuringMayRun(t *testing.T) {
	var m *status.Store
	runs, asked := true, 0
	opts := status.Options{MayRun: func(types.UID) bool {
		asked++
		before := runs
		if runs = false; asked == 1 {
			m.Recheck()
		}
		return before
	}}
	managed(t, opts, func(store *status.Store, k *sink) {
		m = store
		m.Set(named("a"), phased(v1.PodFailed, ""))
		assert.Equal(t, "0 a Failed", k.deliveries())
	})
}
