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

// A panic does not end the process, and is logged once.
func TestObserverThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		n := 0
		add, _ := flow.Observe("Event", func(err error) { n++; panic(err) }, log.logger())
		for range 2 {
			add(errors.New("broken"))
		}
		synctest.Wait()
		assert.Equal(t, 2, n)
		require.Len(t, log.text, 1)
		assert.Contains(t, log.text[0], `"callback"="Event"`)
	})
}

func TestNoObserver(t *testing.T) {
	add, o := flow.Observe[func(int)]("Event", nil, logr.Discard())
	assert.Nil(t, add)
	flow.WaitForObservers(o)
}

// An observer that blocks delays nobody. What it loses is counted; what it receives is in order.
func TestObserverThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			log     lines
			got     []int
			release = make(chan struct{})
		)
		add, o := flow.Observe("Event", func(i int) {
			<-release
			got = append(got, i)
		}, log.logger())
		for i := range 10000 {
			add(i)
			if i == 0 {
				synctest.Wait() // it has taken the first
			}
		}
		began := time.Now()
		flow.WaitForObservers(o, o)
		assert.Equal(t, flow.Late, time.Since(began))
		close(release)
		flow.WaitForObservers(o)
		add(10000)
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
		add   func(int)
		o     *flow.Observer[int]
		total int // one at a time: -race sees to it
		all   sync.WaitGroup
	)
	add, o = flow.Observe("Event", func(more int) {
		total++
		if more > 0 {
			add(more - 1)
		}
	}, logr.Discard())
	for range 8 {
		all.Go(func() {
			for range 100 {
				add(2)
			}
		})
	}
	all.Wait()
	flow.WaitForObservers(o)
	assert.Equal(t, 8*100*3, total)
}

func BenchmarkObserver(b *testing.B) {
	n := 0
	add, o := flow.Observe("Event", func(int) { n++ }, logr.Discard())
	b.Run("burst", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			add(i)
		}
		flow.WaitForObservers(o)
	})
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			add(i)
			flow.WaitForObservers(o)
		}
	})
}
