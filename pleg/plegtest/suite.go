package plegtest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/bubble"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Factory makes the generators that [Suite] tests.
type Factory struct {
	// New returns a generator that reports the changes of the runtime and reads changed
	// pods into the cache, which reads from the same runtime. Each test calls it once, in
	// its bubble of virtual time, before the runtime has pods.
	New func(t *testing.T, rt *Runtime, cache *runtime.Cache) pleg.Generator
	// Within is the longest time from a change to its events while calls succeed at
	// once. Default: 5 s.
	Within time.Duration
	// Pushed means that the generator does not find changes by itself, as a fake: New
	// has them pushed with [Runtime.OnChange]. The tests of failing and hanging
	// calls are skipped then.
	Pushed bool
}

// Suite runs all tests, each as a subtest.
func Suite(t *testing.T, f Factory) {
	if f.Within <= 0 {
		f.Within = 5 * time.Second
	}
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			if f.Pushed && c.finds {
				t.Skip("the generator does not find changes by itself")
			}
			bubble.Test(t, func(t *testing.T) { run(t, &f, c) })
		})
	}
}

// testCase is one test of the suite.
type testCase struct {
	name string
	// finds means that the test needs a generator that calls the runtime itself.
	finds bool
	run   func(e *env)
}

// env is one test under way.
type env struct {
	*testing.T
	*Runtime
	f     *Factory
	cache *runtime.Cache
	g     pleg.Generator
	// stop ends Run, nil before start. ended is closed when Run has returned.
	stop  context.CancelFunc
	ended chan struct{}
	// got are all events that were received, by pod.
	got map[types.UID][]pleg.Event
}

func run(t *testing.T, f *Factory, c testCase) {
	rt := NewRuntime()
	e := &env{
		T: t, Runtime: rt, f: f, cache: runtime.NewCache(rt, runtime.CacheOptions{}),
		ended: make(chan struct{}), got: map[types.UID][]pleg.Event{},
	}
	e.g = f.New(t, rt, e.cache)
	c.run(e)
	if e.stop != nil {
		e.end()
	}
}

// start begins Run.
func (e *env) start() {
	ctx, stop := context.WithCancel(e.Context())
	e.stop = stop
	go func() {
		defer close(e.ended)
		assert.NoError(e, e.g.Run(ctx), "Run")
	}()
	synctest.Wait()
}

// end ends Run, which must return without waiting for anything.
func (e *env) end() {
	e.Helper()
	e.stop()
	synctest.Wait()
	select {
	case <-e.ended:
	default:
		require.Fail(e, "Run does not return when its context ends")
	}
	select {
	case _, open := <-e.g.Watch():
		require.False(e, open, "there are events after Run has returned")
	default:
		require.Fail(e, "the channel is not closed when Run returns")
	}
}

// pass lets the time pass in which events of earlier changes must be ready.
func (e *env) pass() {
	time.Sleep(e.f.Within)
	synctest.Wait()
}

// take receives one item and checks what holds for every item. It returns false if none
// is ready.
func (e *env) take() (item pleg.PodEvents, ok bool) {
	e.Helper()
	synctest.Wait()
	select {
	case item, ok = <-e.g.Watch():
		require.True(e, ok, "the channel is closed before Run returns")
	default:
		return item, false
	}
	require.NotEmpty(e, item.Events, "an item of pod %s has no events", item.Pod)
	assert.Equal(e, Ref(item.Pod.UID), item.Pod)
	for i, event := range item.Events {
		assert.NotContains(e, item.Events[:i], event, "an event stands twice in one item of pod %s", item.Pod)
		switch event.Type {
		case pleg.ContainerDied, pleg.ContainerRemoved, pleg.SandboxDied, pleg.SandboxRemoved:
			assert.NotContains(e, e.got[item.Pod.UID], event, "an event of pod %s is reported twice", item.Pod)
		}
	}
	e.got[item.Pod.UID] = append(e.got[item.Pod.UID], item.Events...)
	e.checkCache(item)
	return item, true
}

// drain receives all items that are ready.
func (e *env) drain() (items []pleg.PodEvents) {
	e.Helper()
	for item, ok := e.take(); ok; item, ok = e.take() {
		items = append(items, item)
	}
	return items
}

// checkCache checks that the status in the cache is not older than the events.
func (e *env) checkCache(item pleg.PodEvents) {
	e.Helper()
	status, known := e.cache.Get(item.Pod.UID)
	if !known {
		e.Do(func(s *State) {
			assert.NotContains(e, s.Pods, item.Pod.UID, "the cache holds no status of pod %s, which exists, when "+
				"its events arrive", item.Pod)
		})
		return
	}
	for _, event := range item.Events {
		stale := false
		if c := status.ByID(event.ContainerID); c != nil {
			stale = event.Type == pleg.ContainerDied && c.State != runtime.ContainerExited ||
				event.Type == pleg.ContainerStarted && c.State == runtime.ContainerCreated ||
				event.Type == pleg.ContainerRemoved
		}
		for i := range status.Sandboxes {
			if s := &status.Sandboxes[i]; s.ID == event.SandboxID {
				stale = event.Type == pleg.SandboxDied && s.State == runtime.SandboxReady ||
					event.Type == pleg.SandboxRemoved
			}
		}
		assert.False(e, stale, "the cached status of pod %s is older than %v: %s", item.Pod, event, Format(status))
	}
}

// expect lets time pass and checks that the reader receives exactly these events of the
// pod, in any order, and none of others.
func (e *env) wants(uid types.UID, events ...pleg.Event) {
	e.Helper()
	e.pass()
	var got []pleg.Event
	for _, item := range e.drain() {
		assert.Equal(e, uid, item.Pod.UID, "events of another pod: %v", item.Events)
		got = append(got, item.Events...)
	}
	assert.ElementsMatch(e, events, got, "events of pod %s", uid)
}

// wantsTruth checks that the cache agrees with the runtime about the pods.
func (e *env) wantsTruth(uids ...types.UID) {
	e.Helper()
	for _, uid := range uids {
		status, known := e.cache.Get(uid)
		e.Do(func(s *State) {
			if _, there := s.Pods[uid]; there {
				assert.Equal(e, Format(s.Status(Ref(uid))), Format(status), "the cached status of pod %s", uid)
			} else {
				assert.False(e, known, "the cache holds a status of pod %s, which is gone", uid)
			}
		})
	}
}

// container and sandbox return events of what [Container] and [Sandbox] make.
func container(t pleg.Type, id string) pleg.Event {
	return pleg.Event{Type: t, ContainerID: runtime.ContainerID{Type: "test", ID: id}, Name: "n-" + id}
}

func sandbox(t pleg.Type, id string) pleg.Event { return pleg.Event{Type: t, SandboxID: id} }
