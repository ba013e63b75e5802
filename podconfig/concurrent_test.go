package podconfig

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
)

// A source delivers ever new pods while the reader is stuck in the middle of a batch. The
// memory is bounded by the desired pods and those that the reader has received.
func TestSlowReaderCostsNoMemory(t *testing.T) {
	t.Parallel()
	m, err := New(Options{Sources: []Source{NewStatic("a"), NewStatic("b")}})
	require.NoError(t, err)
	sinks := []*sink{{mux: m, registration: m.merger.sources[0]}, {mux: m, registration: m.merger.sources[1]}}
	pod := func(uid, name string, n int) *v1.Pod {
		return testpod.New(name, testpod.UID(types.UID(uid)),
			testpod.Container(v1.Container{Name: "c", Image: fmt.Sprint(n)}))
	}
	sinks[0].Set([]*v1.Pod{pod("0", "p", 0)})
	sinks[1].Set([]*v1.Pod{pod("x", "q", 0)})
	require.NotNil(t, m.next())
	m.merger.received()
	require.True(t, m.merger.batch.begun)
	for i := range 10_000 {
		s := sinks[i%2]
		s.Apply(Delta{Update: []*v1.Pod{pod(fmt.Sprint("u", i), fmt.Sprint("n", i%7), 0), pod("0", "p", i)}})
		s.Apply(Delta{Remove: []types.UID{types.UID(fmt.Sprint("u", i-14))}})
	}
	assert.Less(t, len(m.inbox.deliveries), maxInbox)
	assert.LessOrEqual(t, cap(m.inbox.deliveries), 2*maxInbox)
	m.next()
	assert.Less(t, len(m.merger.pending), 50)
	assert.Less(t, len(m.merger.offers.waiting), 50)
	for _, r := range m.merger.sources {
		assert.Less(t, len(r.offers), 50)
	}
}

// TestMuxConcurrently has sources and reader race.
func TestMuxConcurrently(t *testing.T) {
	t.Parallel()
	const rounds = 300
	var sources []Source
	last := make([][]*v1.Pod, 4)
	var all sync.WaitGroup
	for i := range last {
		all.Add(1)
		name := fmt.Sprintf("s%d", i)
		next := func(n int) (pods []*v1.Pod) {
			for k := range n % 5 {
				pods = append(pods,
					testpod.New(fmt.Sprint("p", k+i), testpod.UID(types.UID(fmt.Sprintf("%d-%d", k, (n+i)%7))),
						testpod.Container(v1.Container{Name: "c", Image: fmt.Sprint(n % 3)})))
			}
			return pods
		}
		if i%2 == 0 {
			sources = append(sources, SourceFunc(name, func(_ context.Context, sink Sink) error {
				defer all.Done()
				for n := range rounds {
					last[i] = next(n)
					sink.Set(last[i])
				}
				return nil
			}))
			continue
		}
		sources = append(sources, SourceFunc(name, func(_ context.Context, sink Sink) error {
			defer all.Done()
			sink.Set(nil)
			for n := range rounds {
				d := Delta{Update: next(n)}
				for _, p := range last[i] {
					d.Remove = append(d.Remove, p.UID)
				}
				last[i] = d.Update
				sink.Apply(d)
			}
			return nil
		}))
	}
	m, err := New(Options{Sources: sources})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	finished := make(chan struct{})
	go func() { all.Wait(); close(finished) }()

	idle := func() bool { // the reader has received everything
		m.mu.Lock()
		defer m.mu.Unlock()
		m.inbox.mu.Lock()
		defer m.inbox.mu.Unlock()
		return len(m.inbox.deliveries) == 0 && len(m.merger.pending) == 0 && len(m.merger.batch.changes) == 0
	}
	r := newReplay()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for finished != nil || !idle() || !m.SourcesReady() {
		select {
		case c := <-m.Changes():
			r.apply(t, c)
		case <-finished:
			finished = nil
		case <-look.C:
		}
	}
	require.True(t, m.SourcesReady())
	r.check(t, last)
	cancel()
	require.NoError(t, <-done)
}

// TestMuxSourcesComeAndGo has sources added and removed by several while a reader
// reads.
func TestMuxSourcesComeAndGo(t *testing.T) {
	t.Parallel()
	m, err := New(Options{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	r := newReplay()
	read := make(chan struct{})
	quiet := make(chan struct{})
	go func() {
		defer close(read)
		for c := range m.Changes() {
			r.apply(t, c)
			if m.SourcesReady() && len(r.pods) == 0 && len(m.Sources()) == 0 {
				select {
				case quiet <- struct{}{}:
				default:
				}
			}
		}
	}()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 50 {
				name := fmt.Sprintf("s%d", w)
				if err := m.Add(SourceFunc(name, func(ctx context.Context, sink Sink) error {
					sink.Set([]*v1.Pod{
						testpod.New(fmt.Sprint("p", i%2), testpod.UID(types.UID(fmt.Sprint(i%3))),
							testpod.Containers("c")), testpod.New(name, testpod.Containers("c"))})
					<-ctx.Done()
					return nil
				})); err != nil {
					t.Error(err)
				}
				if !m.Remove(name) {
					t.Error("it was there")
				}
			}
		})
	}
	wg.Wait()
	require.Eventually(t, m.SourcesReady, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	<-read
	assert.Empty(t, r.pods)
}
