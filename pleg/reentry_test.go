package pleg_test

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
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// everything calls all methods of the generator from each callback, and from each method of
// the runtime and of the cache.
type everything struct {
	*plegtest.Runtime
	runtime.StatusCache
	g     pleg.Generator
	calls atomic.Int64
}

func (e *everything) all() {
	if e.g == nil || e.calls.Add(1) > 10_000 { // a relist causes callbacks, which cause relists
		return
	}
	e.g.Relist()
	e.g.Hold("p0")
	e.g.Release("p0")
	_ = e.g.Healthy()
	e.g.Watch()
	if e.g.Run(context.Background()) == nil {
		panic("a second Run must fail")
	}
}

func (e *everything) ListPods(ctx context.Context) ([]*runtime.Pod, error) {
	e.all()
	return e.Runtime.ListPods(ctx)
}

func (e *everything) WatchEvents(ctx context.Context, established func(), hint func(runtime.Hint)) error {
	return e.Runtime.WatchEvents(ctx, func() { e.all(); established() }, func(h runtime.Hint) { e.all(); hint(h) })
}

func (e *everything) Now() runtime.Mark { e.all(); return e.StatusCache.Now() }

func (e *everything) Newer(ctx context.Context, ref runtime.PodRef, after runtime.Mark) (*runtime.PodStatus, error) {
	e.all()
	return e.StatusCache.Newer(ctx, ref, after)
}

func (e *everything) Seen(uid types.UID) []*runtime.PodStatus {
	e.all()
	return e.StatusCache.Seen(uid)
}

func (e *everything) ForgetUntil(uid types.UID, mark runtime.Mark) bool {
	e.all()
	return e.StatusCache.ForgetUntil(uid, mark)
}

func (e *everything) Listed(pods []*runtime.Pod, after runtime.Mark) {
	e.all()
	e.StatusCache.Listed(pods, after)
}

// No callback and no method of another part is called with a lock held.
func TestCallbacksCallEveryMethod(t *testing.T) {
	for name, build := range map[string]func(e *everything, opts pleg.Options) pleg.Generator{
		"Generic": func(e *everything, opts pleg.Options) pleg.Generator { return pleg.NewGeneric(e, e, opts) },
		"Evented": func(e *everything, opts pleg.Options) pleg.Generator {
			return pleg.NewEvented(e, e, pleg.EventedOptions{Options: opts})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := plegtest.NewRuntime()
				e := &everything{Runtime: rt, StatusCache: runtime.NewCache(rt, runtime.CacheOptions{})}
				e.g = build(e, pleg.Options{
					Observer: runtime.Observer{Record: func(runtime.Record) { e.all() },
						Measure: func(runtime.Measurement) { e.all() },
						Logger:  funcr.New(func(string, string) { e.all() }, funcr.Options{Verbosity: 10})},
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- e.g.Run(ctx) }()
				read := make(chan int)
				go func() {
					pods := map[types.UID]bool{}
					for ev := range e.g.Watch() {
						e.all()
						pods[ev.Pod.UID] = true
					}
					read <- len(pods)
				}()
				const pods = 60
				for i := range 5 * pods {
					uid := types.UID(fmt.Sprint("p", i%pods))
					rt.Set(uid, plegtest.Sandbox("s"+string(uid), "ready"),
						plegtest.Container(fmt.Sprint("c", i), "running"))
					if i%20 == 0 {
						rt.BreakStream(runtime.ErrUnavailable)
						time.Sleep(time.Second)
					}
				}
				time.Sleep(10 * time.Minute)
				cancel()
				require.NoError(t, <-done)
				assert.Equal(t, pods, <-read)
				assert.Greater(t, e.calls.Load(), int64(5*pods))
			})
		})
	}
}
