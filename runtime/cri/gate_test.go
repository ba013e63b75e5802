package cri

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// queueAt has calls wait at the gate, each in a goroutine, and has the names of those that have
// entered so far. Each leaves when it has entered, unless its name is kept.
type queueAt struct {
	t     *testing.T
	g     *gate
	mu    sync.Mutex
	order []string
}

func (q *queueAt) wait(name string, p priority, weight int) {
	go func() {
		leave, err := q.g.enter(q.t.Context(), p, weight, time.Hour)
		if assert.NoError(q.t, err) {
			q.mu.Lock()
			q.order = append(q.order, name)
			q.mu.Unlock()
			leave()
		}
	}()
	synctest.Wait()
}

func enter(t *testing.T, g *gate, p priority, weight int, hold time.Duration) (leave func()) {
	t.Helper()
	leave, err := g.enter(t.Context(), p, weight, hold)
	require.NoError(t, err)
	return leave
}

func TestGateOrder(t *testing.T) {
	tests := []struct {
		name string
		come func(q *queueAt)
		want []string
	}{
		{
			name: "the first priority goes first",
			come: func(q *queueAt) {
				q.wait("sandbox", second, 4)
				q.wait("another sandbox", second, 4)
				q.wait("container", first, 4)
				q.wait("another container", first, 4)
			},
			want: []string{"container", "another container", "sandbox", "another sandbox"},
		},
		{
			name: "a heavy one is not overtaken",
			come: func(q *queueAt) {
				q.wait("heavy", first, 3)
				q.wait("light", first, 2)
				q.wait("sandbox", second, 4)
			},
			want: []string{"heavy", "light", "sandbox"},
		},
		{
			name: "one that is too heavy enters alone",
			come: func(q *queueAt) {
				q.wait("light", first, 2)
				q.wait("too heavy", first, 1000)
			},
			want: []string{"light", "too heavy"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(4)
				busy, other := enter(t, g, first, 3, time.Hour), enter(t, g, second, 0, time.Hour)
				q := &queueAt{t: t, g: g}
				tt.come(q)
				assert.Empty(t, q.order)
				busy()
				busy() // once more changes nothing
				synctest.Wait()
				other()
				assert.Equal(t, tt.want, q.order)
				assert.Equal(t, &gate{size: 4, most: 4, room: 4, waiting: [2][]*waiter{{}, {}}}, g)
			})
		})
	}
}

// Removals go on, one at a time, while stops use all of the room.
func TestGateOfSecondPriorityGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(4)
		defer enter(t, g, first, 4, time.Hour)()
		q := &queueAt{t: t, g: g}
		q.wait("stop", first, 1)
		removal := enter(t, g, second, 2, time.Hour)
		q.wait("removal", second, 2)
		assert.Empty(t, q.order)
		removal()
		synctest.Wait()
		assert.Equal(t, []string{"removal"}, q.order)
		enter(t, g, second, 2, time.Hour)()
	})
}

func TestGateDoesNotWaitForWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1)
		hung := enter(t, g, first, 1, 3*time.Second)
		began := time.Now()
		next := enter(t, g, first, 1, time.Hour)
		assert.Equal(t, 3*time.Second, time.Since(began))
		next()
		hung()
		assert.Equal(t, 1, g.room, "it is given back once")
	})
}

// TestGateWithoutABound has the sizes that a negative and a huge Options.MaxParallelEnds mean.
func TestGateWithoutABound(t *testing.T) {
	for _, places := range []int{-1, 1 << 62} {
		rt := New(nil, nil, Options{MaxParallelEnds: places})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 10_000 {
			for _, p := range []priority{first, second} {
				leave, err := rt.ends.enter(ctx, p, stopsPerCall, time.Hour)
				require.NoError(t, err)
				defer leave()
			}
		}
	}
}

func TestGateIsLeftByThoseWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2)
		busy := enter(t, g, first, 1, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		q := &queueAt{t: t, g: g}
		time.AfterFunc(time.Millisecond, func() { q.wait("light", first, 1) })
		_, err := g.enter(ctx, first, 2, time.Hour)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		assert.Equal(t, []string{"light"}, q.order, "it does not wait for the heavy one that gave up")
		busy()
		assert.Equal(t, 2, g.room)
		assert.Empty(t, g.waiting[first])
		_, err = g.enter(ctx, first, 1, time.Hour)
		require.ErrorIs(t, err, context.DeadlineExceeded)
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

// TestStopsKeepTheirDeadline has a thousand containers that ignore the signal and have a short grace
// period, and a runtime of two processors, where a kill takes 440 ms of CPU time. No call takes
// longer than its deadline, two minutes and the grace period.
func TestStopsKeepTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = 2 * time.Second
		var (
			rt      busyRuntime
			mu      sync.Mutex
			wg      sync.WaitGroup
			longest time.Duration
		)
		g := newGate(8 * stopsPerCall)
		began := time.Now()
		for range 1000 {
			wg.Go(func() {
				defer enter(t, g, first, 1, maxStop)()
				made := time.Now()
				time.Sleep(grace)
				rt.work(440 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				longest = max(longest, time.Since(made))
			})
		}
		wg.Wait()
		assert.Less(t, longest, 2*time.Minute)
		assert.LessOrEqual(t, rt.most, 8*stopsPerCall)
		assert.Less(t, time.Since(began), 230*time.Second, "1000 times 220 ms, and the first grace period")
	})
}

// Starts are not ordered by their priority while there is room.
func TestSandboxesAreMadeBesideContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			g    *gate
			want int
		}{"starts": {newGate(8), 5}, "ends": {newStopGate(8), 1}} {
			leave, err := tc.g.enter(t.Context(), first, 1, time.Hour)
			require.NoError(t, err)
			inside := 0
			var all sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			for range 5 {
				all.Go(func() {
					if leave, err := tc.g.enter(ctx, second, 1, time.Hour); err == nil {
						tc.g.mu.Lock()
						inside++
						tc.g.mu.Unlock()
						<-ctx.Done()
						leave()
					}
				})
			}
			synctest.Wait()
			assert.Equal(t, tc.want, inside, name)
			cancel()
			all.Wait()
			leave()
		}
	})
}
