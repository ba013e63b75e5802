package cri

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// queueAt has calls wait at the gate, each in a goroutine, and returns the names of those
// that have passed so far. Each leaves as soon as it has passed.
type queueAt struct {
	t     *testing.T
	g     *gate
	mu    sync.Mutex
	order []string
}

func (q *queueAt) wait(name string, of turn, awaited <-chan struct{}) {
	go func() {
		p, err := q.g.enter(q.t.Context(), of, awaited)
		if assert.NoError(q.t, err) {
			q.mu.Lock()
			q.order = append(q.order, name)
			q.mu.Unlock()
			p.leave()
		}
	}()
	synctest.Wait()
}

func enter(t *testing.T, g *gate, of turn) *place {
	t.Helper()
	p, err := g.enter(t.Context(), of, nil)
	require.NoError(t, err)
	return p
}

func TestGateOrder(t *testing.T) {
	tests := []struct {
		name string
		come func(q *queueAt)
		want []string
	}{
		{
			name: "pods that have a sandbox start before others",
			come: func(q *queueAt) {
				q.wait("first sandbox", newSandbox, nil)
				q.wait("second sandbox", newSandbox, nil)
				q.wait("container", inSandbox, nil)
			},
			want: []string{"container", "first sandbox", "second sandbox"},
		},
		{
			name: "containers, sandboxes, removals",
			come: func(q *queueAt) {
				q.wait("removal", removal, nil)
				q.wait("sandbox", stopSandbox, nil)
				q.wait("container", stopContainer, nil)
			},
			want: []string{"container", "sandbox", "removal"},
		},
		{
			name: "a sandbox does not wait for ever",
			come: func(q *queueAt) {
				q.wait("sandbox", stopSandbox, nil)
				for range 4 {
					time.Sleep(25 * time.Second)
					q.wait(time.Since(epoch).String(), stopContainer, nil)
				}
			},
			want: []string{"25s", "50s", "sandbox", "1m15s", "1m40s"},
		},
		{
			name: "the stops of a pod for which another waits",
			come: func(q *queueAt) {
				awaited, soon := make(chan struct{}), make(chan struct{})
				close(awaited)
				q.wait("a", stopContainer, nil)
				q.wait("b's sandbox", stopSandbox, soon)
				time.Sleep(time.Second)
				q.wait("c's sandbox", stopSandbox, awaited)
				q.wait("d", stopContainer, nil)
				close(soon)
			},
			want: []string{"b's sandbox", "c's sandbox", "a", "d"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(1)
				first := &place{g: g, timer: time.NewTimer(0)} // has no end of its own
				g.used = 1
				q := &queueAt{t: t, g: g}
				tt.come(q)
				synctest.Wait()
				first.leave()
				first.leave() // once more changes nothing
				synctest.Wait()
				assert.Equal(t, tt.want, q.order)
				assert.Zero(t, g.used)
				assert.Empty(t, g.waiting)
			})
		})
	}
}

// epoch is when time begins in a bubble of synctest.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func TestGateDoesNotWaitForWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		hung := enter(t, g, newSandbox)
		began := time.Now()
		next := enter(t, g, newSandbox)
		assert.Equal(t, maxHold, time.Since(began))
		next.leave()
		hung.leave()
		assert.Zero(t, g.used, "the place is given back once")
	})
}

// TestGateWithoutABound has the number of places that a negative Options.MaxParallelEnds
// means.
func TestGateWithoutABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opts Options
		opts.MaxParallelEnds = -1
		opts.setDefaults()
		g := newGate(opts.MaxParallelEnds)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, of := range []turn{stopAwaited, stopContainer, stopSandbox, removal} {
			for range 100 {
				p, err := g.enter(ctx, of, nil)
				require.NoError(t, err)
				defer p.leave()
			}
		}
	})
}

// TestGateLetsASignalPassWhatWaitsForKills has a sandbox that waits for kills for so long
// that it counts as the first, and a stop signal behind it that need not wait for kills.
func TestGateLetsASignalPassWhatWaitsForKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		q := &queueAt{t: t, g: g}
		first := &place{g: g, timer: time.NewTimer(0)} // has no end of its own
		g.used = 1
		q.wait("sandbox", stopSandbox, nil)
		time.Sleep(2 * time.Minute)
		q.wait("container", stopContainer, nil)
		g.mu.Lock()
		g.killing = 1
		g.mu.Unlock()
		first.leave()
		synctest.Wait()
		assert.Equal(t, []string{"container"}, q.order)
		g.mu.Lock()
		g.killing = 0
		g.admit()
		g.mu.Unlock()
		synctest.Wait()
		assert.Equal(t, []string{"container", "sandbox"}, q.order)
	})
}

func TestGateIsLeftByThoseWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		first := enter(t, g, newSandbox)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.enter(ctx, newSandbox, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		first.leave()
		assert.Zero(t, g.used)
		assert.Empty(t, g.waiting)
		_, err = g.enter(ctx, newSandbox, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestGateLendsThePlaceOfAStopThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		began := time.Now()
		stop := enter(t, g, stopContainer)
		stop.lend(10 * time.Second)
		other := enter(t, g, stopSandbox)
		assert.Equal(t, firstPatience, time.Since(began), "it only waits")
		other.leave()
		time.Sleep(10 * time.Second)
		began = time.Now()
		other = enter(t, g, stopContainer)
		assert.Zero(t, time.Since(began), "a signal does not wait while the runtime kills a container")
		other.leave()
		other = enter(t, g, stopSandbox)
		assert.Equal(t, maxKill-firstPatience, time.Since(began), "and the call does not return")
		other.leave()
		stop.leave()
		assert.Zero(t, g.used)
	})
}

// stops makes n calls that stop containers through the gate, which return after some time,
// and returns when each was made.
func stops(t *testing.T, g *gate, n int, grace time.Duration, call func(i int)) (made []time.Duration) {
	t.Helper()
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	began := time.Now()
	for i := range n {
		wg.Go(func() {
			p := enter(t, g, stopContainer)
			defer p.leave()
			p.lend(grace)
			mu.Lock()
			made = append(made, time.Since(began))
			mu.Unlock()
			call(i)
		})
	}
	wg.Wait()
	return made
}

func TestGateSignalsContainersThatIgnoreIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = 30 * time.Second
		g := newGate(8)
		made := stops(t, g, 100, grace, func(int) { time.Sleep(grace) })
		assert.Less(t, slices.Max(made), 2*time.Second)
		assert.Zero(t, g.used)
	})
}

func TestGateSignalsContainersThatExitSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(8)
		made := stops(t, g, 100, 30*time.Second, func(i int) { time.Sleep(5*time.Second + time.Duration(i)*10*time.Millisecond) })
		assert.Less(t, slices.Max(made), 2*time.Second)
	})
}

// busyRuntime is a runtime of two processors that its calls share.
type busyRuntime struct {
	mu         sync.Mutex
	busy, most int // calls under way, now and at most
}

// work takes the CPU time.
func (r *busyRuntime) work(cpu time.Duration) {
	const step = 10 * time.Millisecond
	r.mu.Lock()
	r.busy++
	r.most = max(r.most, r.busy)
	r.mu.Unlock()
	for cpu > 0 {
		time.Sleep(step)
		r.mu.Lock()
		cpu -= step * 2 / time.Duration(max(2, r.busy))
		r.mu.Unlock()
	}
	r.mu.Lock()
	r.busy--
	r.mu.Unlock()
}

// TestGateDoesNotFloodASlowRuntime has a runtime of two processors, where the stop of a
// container that exits at once takes 120 ms of CPU time.
func TestGateDoesNotFloodASlowRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rt busyRuntime
		g := newGate(8)
		began := time.Now()
		stops(t, g, 300, 30*time.Second, func(int) { rt.work(120 * time.Millisecond) })
		assert.LessOrEqual(t, rt.most, 40)
		assert.Less(t, time.Since(began), 25*time.Second)
		assert.Zero(t, g.stopping, "the next ones begin anew")
	})
}

// TestGateBoundsKills has many containers that ignore the signal and have a short grace
// period, and a runtime of two processors, where a kill takes 120 ms of CPU time.
func TestGateBoundsKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = 2 * time.Second
		var rt busyRuntime
		g := newGate(8)
		began := time.Now()
		stops(t, g, 300, grace, func(int) {
			time.Sleep(grace)
			rt.work(120 * time.Millisecond)
		})
		assert.LessOrEqual(t, rt.most, 180)
		assert.Less(t, time.Since(began), 30*time.Second)
		assert.Zero(t, g.killing)
	})
}
