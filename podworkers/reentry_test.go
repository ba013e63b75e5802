package podworkers_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// everything calls all methods of the workers from each callback.
type everything struct {
	podworkers.SyncerBase
	*runtime.Cache
	workers *podworkers.Pool
	calls   atomic.Int64
	within  atomic.Int64
}

func (e *everything) all() {
	if e.workers == nil || e.within.Add(1) > 50 { // callbacks cause callbacks
		e.within.Add(-1)
		return
	}
	defer e.within.Add(-1)
	e.calls.Add(1)
	e.workers.State("u1")
	e.workers.TerminatingByFullName("p1_default")
	e.workers.Predecessor("u2")
	e.workers.UpdatePod(podworkers.Update{Type: podworkers.Sync, Pod: apiPod("none", "none"), OnlyKnown: true})
	if e.workers.Run(context.Background()) == nil {
		panic("a second Run must fail")
	}
}

func (e *everything) InspectPod(_ context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	e.all()
	return &runtime.PodStatus{PodRef: ref}, nil
}

func (e *everything) Now() runtime.Mark                { e.all(); return e.Cache.Now() }
func (e *everything) First(uid types.UID) runtime.Mark { e.all(); return e.Cache.First(uid) }

func (e *everything) SyncPod(_ context.Context, typ podworkers.UpdateType, _ *v1.Pod,
	_ *runtime.PodStatus) (podworkers.Result, error) {
	e.all()
	return podworkers.Result{Changed: typ == podworkers.Create}, nil
}

func (e *everything) SyncTerminatingPod(context.Context, *v1.Pod, *runtime.PodStatus, podworkers.Termination) error {
	e.all()
	return nil
}

func (e *everything) SyncTerminatingOrphan(context.Context, *runtime.Pod, *runtime.PodStatus, *int64) error {
	e.all()
	return nil
}

func (e *everything) SyncTerminatedPod(context.Context, *v1.Pod, *runtime.PodStatus) error {
	e.all()
	return nil
}

func (e *everything) Updated(*v1.Pod) { e.all() }

// No callback and no method of another part is called with a lock held.
func TestCallbacksCallEveryMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &everything{}
		e.Cache = runtime.NewCache(e, runtime.CacheOptions{})
		w, err := podworkers.New(e, e, podworkers.Options{
			OnBegin: func(runtime.PodRef) { e.all() }, OnEnd: func(runtime.PodRef) { e.all() },
			OnFinished: func(runtime.PodRef) { e.all() },
			Observer: runtime.Observer{
				Event: func(runtime.Event) { e.all() }, Record: func(runtime.Record) { e.all() },
				Measure: func(runtime.Measurement) { e.all() },
				Logger:  funcr.New(func(string, string) { e.all() }, funcr.Options{Verbosity: 10}),
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		e.workers = w
		const pods = 60
		for i := range pods {
			go func() {
				pod := staticPod(types.UID(fmt.Sprintf("u%d", i)), fmt.Sprintf("p%d", i/2)) // two of each name
				w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
				w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod, Kill: &podworkers.KillOptions{
					Done: e.all, Status: func(*v1.PodStatus) { e.all() },
				}})
			}()
		}
		time.Sleep(time.Minute)
		assert.Empty(t, w.SyncKnownPods(nil))
		cancel()
		require.NoError(t, <-done)
		assert.Greater(t, e.calls.Load(), int64(5*pods))
	})
}
