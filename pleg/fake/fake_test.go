package fake_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/fake"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	web     = runtime.PodRef{UID: "1", Namespace: "default", Name: "web"}
	db      = runtime.PodRef{UID: "2", Namespace: "default", Name: "db"}
	started = pleg.Event{Type: pleg.ContainerStarted, Name: "main"}
	died    = pleg.Event{Type: pleg.ContainerDied, Name: "main"}
)

// run runs the generator for the length of the test.
func run(t *testing.T, p *fake.PLEG) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// TestConformance pushes each change of a scripted runtime.
func TestConformance(t *testing.T) {
	plegtest.Suite(t, plegtest.Factory{Pushed: true, New: func(_ *testing.T, rt *plegtest.Runtime,
		cache *runtime.Cache) pleg.Generator {
		p := fake.New(fake.Options{Cache: cache})
		rt.OnChange(func(pod runtime.PodRef, events []pleg.Event) { p.Push(pod, events...) })
		return p
	}})
}

func TestEventsAreMergedUntilTheyAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fake.New(fake.Options{})
		p.Push(web, started)
		stop := run(t, p)
		p.Push(db, started)
		p.Push(web, died, started)
		synctest.Wait()
		assert.Len(t, p.Pending(), 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, p.UntilTaken(ctx), context.DeadlineExceeded, "there is no reader")

		assert.Equal(t, pleg.PodEvents{Pod: web, Events: []pleg.Event{started, died}}, <-p.Watch())
		assert.Equal(t, pleg.PodEvents{Pod: db, Events: []pleg.Event{started}}, <-p.Watch())
		require.NoError(t, p.UntilTaken(t.Context()))
		assert.Len(t, p.Taken(), 2)

		p.Push(web, died)
		assert.Equal(t, pleg.PodEvents{Pod: web, Events: []pleg.Event{died}}, <-p.Watch())
		p.Push(web, died)
		stop()
		_, open := <-p.Watch()
		assert.False(t, open)
		require.ErrorIs(t, p.Run(t.Context()), runtime.ErrAlreadyRunning)
		require.NoError(t, p.UntilTaken(t.Context()), "events that were not received end with Run")
	})
}

func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fake.New(fake.Options{})
		require.ErrorContains(t, p.Healthy(), "Run is not under way")
		stop := run(t, p)
		require.NoError(t, p.Healthy())
		sick := errors.New("no progress")
		p.SetHealth(sick)
		require.ErrorIs(t, p.Healthy(), sick)
		p.SetHealth(nil)
		require.NoError(t, p.Healthy())
		stop()
		require.Error(t, p.Healthy())
	})
}

// inspector counts its calls, and returns err.
type inspector struct {
	n   int
	err error
}

func (i *inspector) InspectPod(_ context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	i.n++
	return &runtime.PodStatus{PodRef: ref, IPs: []string{fmt.Sprint(i.n)}, Sandboxes: make([]runtime.SandboxStatus, 1)},
		i.err
}

func TestTheCacheIsReadFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &inspector{}
		cache := runtime.NewCache(in, runtime.CacheOptions{})
		p := fake.New(fake.Options{Cache: cache})
		defer run(t, p)()
		p.Push(web, started)
		<-p.Watch()
		s, ok := cache.Get(web.UID)
		require.True(t, ok)
		assert.Equal(t, []string{"1"}, s.IPs)

		in.err = errors.New("no answer")
		p.Push(web, died)
		synctest.Wait()
		select {
		case <-p.Watch():
			t.Error("events of a pod that could not be read")
		default:
		}
		in.err = nil
		p.Push(web)
		assert.Equal(t, []pleg.Event{died}, (<-p.Watch()).Events)
	})
}

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	events := fake.New(fake.Options{})
	done := make(chan error)
	go func() { done <- events.Run(ctx) }()

	// The code under test would receive these.
	events.Push(web, died)
	fmt.Println((<-events.Watch()).Events[0].Type)
	fmt.Println("taken:", events.UntilTaken(ctx))
	events.SetHealth(errors.New("no list call has succeeded for 3m"))
	fmt.Println("healthy:", events.Healthy())
	cancel()
	fmt.Println("ended:", <-done)
	// Output:
	// ContainerDied
	// taken: <nil>
	// healthy: no list call has succeeded for 3m
	// ended: <nil>
}
