package cri

import (
	"context"
	goruntime "runtime"
	"slices"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/underway"
)

// maxPlace is how long a call keeps its place in a gate, and maxStop how long a stop has its
// share, before the end of the grace period and after it. A longer one continues without a place: a few
// pods whose network hangs, or that use hours of grace period, must not keep others from starting or
// ending.
const (
	maxPlace = 3 * time.Second
	maxStop  = time.Minute
)

// A stop of a container has the place of a call for signalTime: until then the runtime sends the
// signal. Afterwards most stops wait for the end of the grace period, which costs the runtime
// nothing, and stopsPerCall of them share a place. When the grace period has ended, the runtime
// kills the container without a further call, and killsPerCall of the stops share a place: with
// hundreds of kills at the same time, each takes many seconds, and calls miss their deadlines.
const (
	signalTime   = 100 * time.Millisecond
	stopsPerCall = 32
	killsPerCall = 8
)

// step is a part of the time in a gate: the weight that an entrant has for the duration.
type step struct {
	weight int
	d      time.Duration
}

// callStep returns the only step of a call in a gate for what ends.
func callStep() step { return step{stopsPerCall, maxPlace} }

// stopSteps returns the steps of the stop of n containers that have the grace period.
func stopSteps(n int, grace time.Duration) []step {
	signal, shared := min(grace, signalTime), min(grace, maxStop)
	return []step{{n * stopsPerCall, signal}, {n, shared - signal}, {0, grace - shared},
		{n * stopsPerCall / killsPerCall, maxStop}}
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
	// room is what is left of the size. It is negative if an entrant weighs more than there was, or
	// became heavier inside: an entrant waits only while there is no room at all.
	room int
	// waiting has those that wait, by priority.
	waiting [2][]*entrant
}

// maxWait is how long an entrant of the second priority lets the first go first.
const maxWait = time.Minute

type priority int

const (
	first priority = iota
	second
)

// entrant is what waits at a gate or is inside.
type entrant struct {
	since  time.Time
	pass   chan struct{} // closed when it is inside
	weight int           // that of the present step
	steps  []step        // the present one and those that follow
	timer  *time.Timer   // ends the present step
	left   bool
}

func newGate(size int) *gate { return &gate{size: size, room: size} }

// enter waits until the entrant is inside, and fails when ctx ends. The entrant has the weight of
// each step in turn. It leaves after the last step, or with leave, which must be called and may be
// called more than once.
func (g *gate) enter(ctx context.Context, p priority, steps ...step) (leave func(), err error) {
	if ctx.Err() != nil {
		return nil, flow.Ended(ctx)
	}
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.d <= 0 })
	e := &entrant{since: time.Now(), pass: make(chan struct{}), weight: min(steps[0].weight, g.size), steps: steps}
	g.mu.Lock()
	g.waiting[p] = append(g.waiting[p], e)
	g.admit()
	g.mu.Unlock()
	defer underway.Begin(ctx, "", "other pods: few start or end at the same time", "").End()
	select {
	case <-e.pass:
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		if i := slices.Index(g.waiting[p], e); i >= 0 {
			g.waiting[p] = slices.Delete(g.waiting[p], i, i+1)
		} else { // it came inside when ctx ended
			g.weigh(e, 0)
		}
		return nil, flow.Ended(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e.timer = time.AfterFunc(e.steps[0].d, func() { g.endStep(e) })
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		e.left = true
		e.timer.Stop()
		g.weigh(e, 0)
	}, nil
}

// endStep ends the present step of an entrant.
func (g *gate) endStep(e *entrant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.left {
		return
	}
	if e.steps = e.steps[1:]; len(e.steps) == 0 {
		g.weigh(e, 0)
		return
	}
	g.weigh(e, e.steps[0].weight)
	e.timer.Reset(e.steps[0].d)
}

// weigh changes the weight of an entrant that is inside. g.mu is held.
func (g *gate) weigh(e *entrant, weight int) {
	weight = min(weight, g.size)
	g.room += e.weight - weight
	e.weight = weight
	g.admit()
}

// admit lets in those that may enter. g.mu is held.
func (g *gate) admit() {
	for {
		p := first
		if len(g.waiting[first]) == 0 || len(g.waiting[second]) > 0 &&
			time.Since(g.waiting[second][0].since) >= maxWait {
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
