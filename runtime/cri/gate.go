package cri

import (
	"context"
	goruntime "runtime"
	"slices"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// maxHold is how long a call keeps its place in a gate, and maxStop how long the end of a pod
// does. A longer one continues without a place: a few pods whose network hangs, or that use
// hours of grace period, must not keep others from starting or ending.
const (
	maxHold = 3 * time.Second
	maxStop = time.Minute
)

// A stop of a container has the place of a call for signalTime: until then the runtime sends the
// signal, and most containers exit. Afterwards most stops wait for the end of the grace period,
// which costs the runtime nothing, and stopsPerCall of them share a place. They keep a share, as
// a runtime that has hundreds of containers to kill at the same time needs longer for each.
const (
	signalTime   = 500 * time.Millisecond
	stopsPerCall = 32
)

// step is a part of the time in a gate: the weight that an entrant has for the duration.
type step struct {
	weight int
	d      time.Duration
}

// callStep returns the only step of a call in a gate for what ends.
func callStep() step { return step{stopsPerCall, maxHold} }

// stopSteps returns the steps of the stop of n containers.
func stopSteps(n int) []step {
	return []step{{n * stopsPerCall, signalTime}, {n, maxStop}}
}

// unbounded is the number of calls that a negative Options.MaxParallelEnds means.
const unbounded = 1 << 20

// defaultParallel returns the default of Options.MaxParallelStarts and MaxParallelEnds.
// With more calls at once the throughput of a runtime does not increase, while the latency
// of each call does.
func defaultParallel() int { return max(8, 2*goruntime.GOMAXPROCS(0)) }

// gate is a semaphore with two priorities. It bounds what a runtime works on at the same time.
//
// Each entrant has a weight. Entrants of one priority enter in the order of their arrival. Those
// of the second wait while one of the first does, but not for longer than maxWait. So in a
// gate for what ends, the containers of many pods stop before what is left of the pods is
// removed (BenchmarkRemoval).
type gate struct {
	size int // the sum of the weights that may be inside
	mu   sync.Mutex
	// room is what is left of the size. It is negative if the last entrant weighs more than there
	// was: an entrant waits only while there is no room at all.
	room int
	// waiting has those that wait, by priority.
	waiting [2][]*waiter
}

// maxWait is how long an entrant of the second priority lets the first go first.
const maxWait = time.Minute

type priority int

const (
	first priority = iota
	second
)

// waiter is an entrant that waits.
type waiter struct {
	weight int
	since  time.Time
	pass   chan struct{} // closed when it is inside
}

func newGate(size int) *gate { return &gate{size: size, room: size} }

// enter waits until the entrant is inside, and fails when ctx ends. The entrant has the weight of
// each step in turn; the weights do not grow. It leaves after the last step, or with leave, which
// must be called and may be called more than once.
func (g *gate) enter(ctx context.Context, p priority, steps ...step) (leave func(), err error) {
	if ctx.Err() != nil {
		return nil, flow.Ended(ctx)
	}
	w := &waiter{weight: min(steps[0].weight, g.size), since: time.Now(), pass: make(chan struct{})}
	g.mu.Lock()
	g.waiting[p] = append(g.waiting[p], w)
	g.admit()
	g.mu.Unlock()
	select {
	case <-w.pass:
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		if i := slices.Index(g.waiting[p], w); i >= 0 {
			g.waiting[p] = slices.Delete(g.waiting[p], i, i+1)
		} else { // it came inside when ctx ended
			g.room += w.weight
			g.admit()
		}
		return nil, flow.Ended(ctx)
	}
	shrink := func(to int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		to = min(to, w.weight)
		g.room += w.weight - to
		w.weight = to
		g.admit()
	}
	var timers []*time.Timer
	after := time.Duration(0)
	for i := range steps {
		next := 0
		if i+1 < len(steps) {
			next = steps[i+1].weight
		}
		after += steps[i].d
		timers = append(timers, time.AfterFunc(after, func() { shrink(next) }))
	}
	return func() {
		for _, t := range timers {
			t.Stop()
		}
		shrink(0)
	}, nil
}

// admit lets in those that may enter. g.mu is held.
func (g *gate) admit() {
	for {
		p := first
		if len(g.waiting[first]) == 0 || len(g.waiting[second]) > 0 && time.Since(g.waiting[second][0].since) >= maxWait {
			p = second
		}
		if len(g.waiting[p]) == 0 || g.room <= 0 {
			return
		}
		w := g.waiting[p][0]
		g.waiting[p] = g.waiting[p][1:]
		g.room -= w.weight
		close(w.pass)
	}
}
