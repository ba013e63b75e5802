package cri

import (
	"context"
	"sync"
	"sync/atomic"
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
		leave, err := q.g.enter(q.t.Context(), p, step{weight, time.Hour})
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
	leave, err := g.enter(t.Context(), p, step{weight, hold})
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
			name: "a heavy one is not overtaken, even if it is heavier than the gate",
			come: func(q *queueAt) {
				q.wait("heavy", first, 1000)
				q.wait("light", first, 4)
				q.wait("sandbox", second, 4)
			},
			want: []string{"heavy", "light", "sandbox"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(4)
				busy := enter(t, g, first, 3, time.Hour)
				other := enter(t, g, second, 1, time.Hour)
				q := &queueAt{t: t, g: g}
				tt.come(q)
				assert.Empty(t, q.order)
				busy()
				busy() // once more changes nothing
				synctest.Wait()
				other()
				synctest.Wait()
				assert.Equal(t, tt.want, q.order)
				assert.Equal(t, &gate{size: 4, room: 4, waiting: [2][]*entrant{{}, {}}}, g)
			})
		})
	}
}

// Removals go on while more and more containers are to be stopped.
func TestGateOfSecondPriorityGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(4)
		stop := enter(t, g, first, 4, time.Hour)
		q := &queueAt{t: t, g: g}
		q.wait("removal", second, 4)
		q.wait("stop", first, 4)
		q.wait("later removal", second, 4)
		time.Sleep(maxWait)
		q.wait("later stop", first, 4)
		stop()
		synctest.Wait()
		assert.Equal(t, []string{"removal", "later removal", "stop", "later stop"}, q.order)
	})
}

// Stops have the place of a call until the signal is sent, and wait for the exit together.
func TestStopsThatWaitShareAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(4 * stopsPerCall)
		var inside atomic.Int32
		for range 100 {
			go func() {
				leave, err := g.enter(t.Context(), first, stopSteps(1, 30*time.Second)...)
				if assert.NoError(t, err) {
					inside.Add(1)
					time.Sleep(30 * time.Second)
					leave()
				}
			}()
			synctest.Wait()
		}
		assert.EqualValues(t, 4, inside.Load())
		for _, want := range []int32{8, 12} {
			time.Sleep(signalTime)
			synctest.Wait()
			assert.Equal(t, want, inside.Load(), "those that wait for the exit leave room")
		}
		time.Sleep(29 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 100, inside.Load())
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, g.size, g.room)
	})
}

// When the grace period has ended, the runtime kills the container: killsPerCall of these stops have
// the place of a call, and further stops wait for them, but for maxStop only.
func TestStopsWaitForKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = 5 * time.Minute
		g := newGate(stopsPerCall)
		room := func() int {
			synctest.Wait()
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.room
		}
		var leaves []func()
		for range killsPerCall {
			leave, err := g.enter(t.Context(), first, stopSteps(1, grace)...)
			require.NoError(t, err)
			leaves = append(leaves, leave)
			time.Sleep(signalTime)
			synctest.Wait()
		}
		assert.Equal(t, g.size-killsPerCall, room(), "they wait for the exit")
		time.Sleep(maxStop)
		assert.Equal(t, g.size, room(), "they wait for long")
		time.Sleep(grace - maxStop)
		assert.Zero(t, room(), "the runtime kills")
		q := &queueAt{t: t, g: g}
		q.wait("stop", first, stopsPerCall)
		assert.Empty(t, q.order)
		leaves[0]()
		synctest.Wait()
		assert.Equal(t, []string{"stop"}, q.order)
		time.Sleep(maxStop)
		assert.Equal(t, g.size, room(), "a kill that hangs")
		for _, leave := range leaves {
			leave()
		}
		assert.Equal(t, g.size, room())
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
				leave, err := rt.ends.enter(ctx, p, callStep())
				require.NoError(t, err)
				defer leave()
			}
		}
	}
}

func TestGateIsLeftByThoseWhoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2)
		busy := enter(t, g, first, 2, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		q := &queueAt{t: t, g: g}
		time.AfterFunc(time.Millisecond, func() { q.wait("next", first, 1) })
		_, err := g.enter(ctx, first, step{2, time.Hour})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		assert.Empty(t, q.order)
		busy()
		synctest.Wait()
		assert.Equal(t, []string{"next"}, q.order)
		assert.Equal(t, 2, g.room)
		assert.Empty(t, g.waiting[first])
		_, err = g.enter(ctx, first, step{1, time.Hour})
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
				leave, err := g.enter(t.Context(), first, stopSteps(1, grace)...)
				if !assert.NoError(t, err) {
					return
				}
				defer leave()
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
		assert.LessOrEqual(t, rt.most, 150, "kills at the same time")
		assert.Less(t, time.Since(began), 240*time.Second,
			"1000 times 220 ms, and the first grace period, and a little")
	})
}

// The priorities do not matter while there is room.
func TestSandboxesAreMadeBesideContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(8)
		for range 4 {
			defer enter(t, g, first, 1, time.Hour)()
			defer enter(t, g, second, 1, time.Hour)()
		}
		assert.Zero(t, g.room)
	})
}
