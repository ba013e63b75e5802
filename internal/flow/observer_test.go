package flow_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

type metrics interface {
	Counted(n int)
	Failed(err error)
}

type counter struct{ n int }

func (c *counter) Counted(n int)    { c.n += n }
func (c *counter) Failed(err error) { panic(err) }

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text = append(l.text, args)
	}, funcr.Options{})
}

// A panic does not end the process, and is logged once for each method.
func TestObserverThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		c := &counter{}
		for _, o := range []*flow.Observer[metrics]{
			flow.Observe[metrics]("Metrics", c, log.logger()), flow.Observe[metrics]("Broken", struct{ metrics }{},
				log.logger()),
		} {
			for range 2 {
				o.Call("Counted", func(m metrics) { m.Counted(2) })
				o.Call("Failed", func(m metrics) { m.Failed(errors.New("broken")) })
			}
		}
		synctest.Wait()
		assert.Equal(t, 4, c.n)
		require.Len(t, log.text, 3)
		assert.Contains(t, strings.Join(log.text, "\n"), `"callback"="Metrics.Failed"`)
	})
}

func TestNoObserver(t *testing.T) {
	flow.Observe[metrics]("Metrics", nil, logr.Discard()).Call("Counted", func(metrics) { t.Error("called") })
	flow.Observe[func()]("Event", nil, logr.Discard()).Call("", func(func()) { t.Error("called") })
	new(flow.Observer[metrics]).Call("Counted", func(metrics) { t.Error("called") })
}

// An observer that blocks delays nobody. What it loses is counted; what it receives is in order.
func TestObserverThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			log     lines
			got     []int
			release = make(chan struct{})
		)
		o := flow.Observe("Event", func(i int) {
			<-release
			got = append(got, i)
		}, log.logger())
		for i := range 10000 {
			o.Call("", func(f func(int)) { f(i) })
			if i == 0 {
				synctest.Wait() // it has taken the first
			}
		}
		began := time.Now()
		flow.WaitForObservers(o, o)
		assert.Equal(t, flow.Late, time.Since(began))
		close(release)
		flow.WaitForObservers(o)
		o.Call("", func(f func(int)) { f(10000) })
		flow.WaitForObservers(o)

		assert.IsIncreasing(t, got)
		assert.Len(t, got, 1+4096+1)
		all := strings.Join(log.text, "\n")
		assert.Equal(t, 1, strings.Count(all, "further calls of it are dropped"))
		assert.Equal(t, 1, strings.Count(all, `"dropped"=5903`), all)
		assert.Equal(t, 2, strings.Count(all, "nothing waits for it any longer"))
	})
}

// Calls from many goroutines, of an observer that calls back, arrive once and one at a time.
func TestObserverInManyGoroutines(t *testing.T) {
	var (
		o     *flow.Observer[func(int)]
		total int // one at a time: -race sees to it
		all   sync.WaitGroup
	)
	o = flow.Observe("Event", func(more int) {
		total++
		if more > 0 {
			o.Call("", func(f func(int)) { f(more - 1) })
		}
	}, logr.Discard())
	for range 8 {
		all.Go(func() {
			for range 100 {
				o.Call("", func(f func(int)) { f(2) })
			}
		})
	}
	all.Wait()
	flow.WaitForObservers(o)
	assert.Equal(t, 8*100*3, total)
}

func BenchmarkObserver(b *testing.B) {
	n := 0
	o := flow.Observe("Event", func(int) { n++ }, logr.Discard())
	b.Run("burst", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			o.Call("", func(f func(int)) { f(i) })
		}
		flow.WaitForObservers(o)
	})
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			o.Call("", func(f func(int)) { f(i) })
			flow.WaitForObservers(o)
		}
	})
}
