package cri

import (
	"context"
	goruntime "runtime"
	"slices"
	"sync"
	"time"
)

// maxHold is how long a call keeps its place in a gate, and maxStop how long the end of a pod
// does. A longer one continues without a place: a few pods whose network hangs, or that use
// hours of grace period, must not keep others from starting or ending.
const (
	maxHold = 3 * time.Second
	maxStop = time.Minute
)

// stopsPerCall is the number of containers that are stopped in the place of one other call:
// most of the time a stop waits for the exit of its container, and costs the runtime nothing.
const stopsPerCall = 32

// unbounded is the number of calls that a negative Options.MaxParallelEnds means.
const unbounded = 1 << 20

// defaultParallel returns the default of Options.MaxParallelStarts and MaxParallelEnds.
// With more calls at once the throughput of a runtime does not increase, while the latency
// of each call does.
func defaultParallel() int { return max(8, 2*goruntime.GOMAXPROCS(0)) }

// gate is a semaphore with two priorities. It bounds what a runtime works on at the same time.
//
// Each entrant has a weight. What has the first priority enters in the order of its arrival. What
// has the second one enters when nothing of the first waits, not too much of it is inside, and there is room, or when
// nothing else of the second is inside, so that it goes on in any case. In a gate for what ends, the containers of many pods so stop
// before what is left of the pods is removed (BenchmarkRemoval).
type gate struct {
	size int // the sum of the weights that may be inside
	// most is the sum of the weights of the first priority with which the second one still enters.
	most int
	mu   sync.Mutex
	// room is the sum of weights that may still enter. It is negative if something of the
	// second priority has entered without room.
	room int
	// first is the sum of the weights of the first priority that are inside, and second the number of entrants of the
	// second.
	first, second int
	// waiting has those that wait, by priority.
	waiting [2][]*waiter
}

type priority int

const (
	first priority = iota
	second
)

// waiter is an entrant that waits.
type waiter struct {
	weight int
	pass   chan struct{} // closed when it is inside
}

func newGate(size int) *gate { return &gate{size: size, most: size, room: size} }

// newStopGate returns a gate for what ends, whose first priority are stops of containers.
func newStopGate(size int) *gate { return &gate{size: size, most: size / stopsPerCall, room: size} }

// enter waits until the entrant is inside, and fails when ctx ends. The entrant leaves after the
// hold, or with leave, which must be called and may be called more than once.
func (g *gate) enter(ctx context.Context, p priority, weight int, hold time.Duration) (leave func(), err error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	weight = min(weight, g.size)
	w := &waiter{weight: weight, pass: make(chan struct{})}
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
			g.admit() // what waits behind it may be lighter
			return nil, ended(ctx)
		}
		g.release(p, weight) // it came inside when ctx ended
		return nil, ended(ctx)
	}
	once := sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.release(p, weight)
	})
	timer := time.AfterFunc(hold, once)
	return func() {
		timer.Stop()
		once()
	}, nil
}

// release gives the weight back. g.mu is held.
func (g *gate) release(p priority, weight int) {
	g.room += weight
	if p == second {
		g.second--
	} else {
		g.first -= weight
	}
	g.admit()
}

// admit lets in those that may enter. g.mu is held.
func (g *gate) admit() {
	for len(g.waiting[first]) > 0 && g.waiting[first][0].weight <= g.room {
		g.first += g.waiting[first][0].weight
		g.pass(first)
	}
	for len(g.waiting[second]) > 0 {
		fits := len(g.waiting[first]) == 0 && g.first <= g.most && g.waiting[second][0].weight <= g.room
		if !fits && g.second > 0 {
			return
		}
		g.second++
		g.pass(second)
	}
}

// pass lets the first one that waits in. g.mu is held.
func (g *gate) pass(p priority) {
	w := g.waiting[p][0]
	g.waiting[p] = g.waiting[p][1:]
	g.room -= w.weight
	close(w.pass)
}
