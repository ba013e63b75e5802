package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ctr and sbx are parts of a pod.
func ctr(id string, state runtime.ContainerState) plegtest.Part { return plegtest.Container(id, state) }
func sbx(id string, state runtime.SandboxState) plegtest.Part   { return plegtest.Sandbox(id, state) }

// words writes events as "Type id".
func words(events []pleg.Event) []string {
	out := []string{}
	for _, e := range events {
		out = append(out, fmt.Sprint(e.Type, " ", e.ContainerID.ID, e.SandboxID))
	}
	return out
}

// rig is a generator over a scripted runtime, in virtual time.
type rig struct {
	*testing.T
	*plegtest.Runtime
	cache *runtime.Cache
	g     pleg.Generator
	stop  context.CancelFunc
	// ended is closed when Run has returned.
	ended chan struct{}
	// metrics receives what the generator reports and logs.
	metrics *recorder
}

// inGeneric runs a test with a Generic, inEvented with an Evented. Metrics and Logger of
// the options are those of the rig.
func inGeneric(t *testing.T, opts pleg.Options, test func(r *rig)) {
	inRig(t, func(r *rig) pleg.Generator { return pleg.NewGeneric(r.Runtime, r.cache, r.metrics.options(opts)) }, test)
}

func inEvented(t *testing.T, opts pleg.EventedOptions, test func(r *rig)) {
	inRig(t, func(r *rig) pleg.Generator {
		opts.Options = r.metrics.options(opts.Options)
		return pleg.NewEvented(r.Runtime, r.cache, opts)
	}, test)
}

func inRig(t *testing.T, build func(r *rig) pleg.Generator, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.NewRuntime()
		r := &rig{T: t, Runtime: rt, cache: runtime.NewCache(rt, runtime.CacheOptions{}), ended: make(chan struct{}),
			metrics: &recorder{}}
		r.g = build(r)
		test(r)
		if r.stop != nil {
			r.halt()
		}
	})
}

// run starts the generator; the first relist is done when it returns.
func (r *rig) run() {
	ctx, stop := context.WithCancel(r.Context())
	r.stop = stop
	go func() {
		defer close(r.ended)
		assert.NoError(r, r.g.Run(ctx))
	}()
	synctest.Wait()
}

// settled runs the generator until the stream is trusted, and takes all events.
func (r *rig) settled() {
	r.run()
	require.Equal(r, 300*time.Second, r.period())
	r.drain()
}

func (r *rig) halt() {
	r.stop()
	synctest.Wait()
	select {
	case <-r.ended:
	default:
		r.Error("Run has not returned")
	}
}

// pass lets time pass, and what is to happen then happen.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// take returns what waits for the reader first, or "".
func (r *rig) take() string {
	r.Helper()
	synctest.Wait()
	select {
	case e, ok := <-r.g.Watch():
		require.True(r, ok)
		return fmt.Sprint(e.Pod.UID, words(e.Events))
	default:
		return ""
	}
}

// drain takes all that waits for the reader.
func (r *rig) drain() []string {
	r.Helper()
	all := []string{}
	for s := r.take(); s != ""; s = r.take() {
		all = append(all, s)
	}
	return all
}

func (r *rig) cached(uid types.UID) string {
	status, _ := r.cache.Get(uid)
	return plegtest.Format(status)
}

// period returns the time from the last relist to the next.
func (r *rig) period() time.Duration {
	l := last(r.metrics.now().relists)
	return l.Due.Sub(l.Began.Add(l.Took))
}

// counts returns a function that returns how many list calls there were since it was
// last called.
func (r *rig) counts() func() int {
	last := r.Lists()
	return func() int {
		now := r.Lists()
		defer func() { last = now }()
		return now - last
	}
}

// recorder keeps what is measured and logged.
type recorder struct {
	mu sync.Mutex
	recorded
}

type recorded struct {
	relists   []pleg.Relisted
	counts    []pleg.Counts
	connected []error
	ages      []time.Duration
	missed    []int
	logged    []string
}

func (m *recorder) measure(v runtime.Measurement) {
	m.do(func(m *recorded) {
		switch v := v.(type) {
		case pleg.Relisted:
			m.relists = append(m.relists, v)
		case pleg.Counts:
			m.counts = append(m.counts, v)
		case pleg.Connected:
			m.connected = append(m.connected, v.Err)
		case pleg.Hinted:
			m.ages = append(m.ages, v.Age)
		case pleg.Missed:
			m.missed = append(m.missed, v.Pods)
		}
	})
}

func (m *recorder) log(_, line string) {
	m.do(func(m *recorded) { m.logged = append(m.logged, line) })
}

func (m *recorder) do(f func(*recorded)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.recorded)
}

// now returns a copy of what was recorded until now.
func (m *recorder) now() (r recorded) {
	m.do(func(m *recorded) {
		r = recorded{slices.Clone(m.relists), slices.Clone(m.counts), slices.Clone(m.connected), slices.Clone(m.ages),
			slices.Clone(m.missed), slices.Clone(m.logged)}
	})
	return r
}

// options returns the options with the recorder in place.
func (m *recorder) options(opts pleg.Options) pleg.Options {
	opts.Measure, opts.Logger = m.measure, funcr.New(m.log, funcr.Options{Verbosity: 1})
	return opts
}

func last[T any](s []T) T { return s[len(s)-1] }

// errNoStream is what a runtime without an event stream returns.
var errNoStream = errors.Join(plegtest.ErrInjected, errors.ErrUnsupported)
