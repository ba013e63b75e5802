package podconfig_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// recorder keeps what is measured.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) take() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

func (r *recorder) Measure(v runtime.Measurement) {
	switch v := v.(type) {
	case podconfig.SourceCounts:
		r.add("sources %d, seen %d", v.Registered, v.Seen)
	case podconfig.SourceFailed:
		r.add("%s failed", v.Source)
	case podconfig.PodRejected:
		r.add("pod of %s rejected", v.Source)
	case podconfig.ChangeDelivered:
		r.add("%s %s %d", v.Op, v.Source, v.Pods)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics := &recorder{}
		r := newRigWith(t, podconfig.Options{Observer: runtime.Observer{Measure: metrics.Measure}}, "file", "http")
		assert.Equal(t, []string{"sources 1, seen 0", "sources 2, seen 0"}, metrics.take())
		r.set(0, testPod("1", "a"), testPod("2", "b"))
		r.read()
		assert.Equal(t, []string{"ADD file 2", "sources 2, seen 1"}, metrics.take())
		r.set(1, testPod("3", "a"))
		assert.Equal(t, []string{"pod of http rejected"}, metrics.take())
		r.read()
		assert.Equal(t, []string{"ADD http 0", "sources 2, seen 2"}, metrics.take())
		r.sources[1].errs <- errors.New("no")
		r.read()
		assert.Equal(t, []string{"http failed"}, metrics.take())
		r.mux.Remove("file")
		r.read()
		assert.Equal(t, []string{"sources 1, seen 1", "REMOVE file 2", "ADD http 1"}, metrics.take())
		r.stop()
		assert.Empty(t, metrics.take())
	})
}

func TestPanicIsLoggedWithItsStack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		r := newRigWith(t, podconfig.Options{
			Observer: runtime.Observer{Logger: funcr.New(func(_, args string) { lines = append(lines, args) },
				funcr.Options{})},
			Sources: []podconfig.Source{sourceFunc{"bad", func(context.Context, podconfig.Sink) error { panic("x") }}},
		})
		time.Sleep(time.Second / 2)
		r.stop()
		assert.Len(t, lines, 1)
		assert.Contains(t, lines[0], `"error"="panic: x"`)
		assert.Contains(t, lines[0], "metrics_test.go")
	})
}

// wrapper hides the optional methods of the source, and names what it wraps.
type wrapper struct{ podconfig.Source }

func (w wrapper) Unwrap() any { return w.Source }

func TestRestorerIsFoundThroughWrappers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &restorer{}
		opts := restoring(testPod("1", "a", from("file")))
		opts.Sources = []podconfig.Source{wrapper{source}}
		r := newRigWith(t, opts)
		assert.Equal(t, []string{"ADD file a/1"}, r.read())
		assert.Equal(t, []*v1.Pod{testPod("1", "a", from("file"))}, source.restored)
		r.stop()
	})
}

// An observer that is called directly may call the mux: no lock is held.
func TestObserverCallsTheMux(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mux *podconfig.Mux
		calls := 0
		all := func() {
			if mux != nil {
				mux.Sources()
				mux.SourcesReady()
				mux.Remove("none")
				calls++
			}
		}
		r := newRigWith(t, podconfig.Options{Observer: runtime.Observer{NonBlocking: true,
			Record: func(runtime.Record) { all() }, Measure: func(runtime.Measurement) { all() }}}, "file", "http")
		synctest.Wait()
		mux = r.mux
		r.set(0, testPod("1", "a"))
		r.set(1, testPod("2", "a"))
		r.read()
		assert.NoError(t, mux.Add(podconfig.NewStatic("static")))
		mux.Remove("http")
		r.read()
		r.stop()
		assert.Greater(t, calls, 6)
	})
}
