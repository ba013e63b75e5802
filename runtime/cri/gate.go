package cri

import (
	"cmp"
	"context"
	goruntime "runtime"
	"slices"
	"sync"
	"time"
)

// maxHold is how long a call keeps its place in a gate. A longer call continues
// without one: a few pods whose network hangs must not keep others from starting or ending.
const maxHold = 3 * time.Second

// maxKill is how long calls wait for the kill of a container whose grace period has ended. It
// is longer than maxHold, as kills cannot be held back: hundreds of them at once take many
// seconds each.
const maxKill = 10 * time.Second

// defaultParallel returns the default of Options.MaxParallelStarts and MaxParallelEnds.
// With more calls at once the throughput of a runtime does not increase, while the latency
// of each call does.
func defaultParallel() int { return max(8, 2*goruntime.GOMAXPROCS(0)) }

// turn is the class of a call that waits at a gate, as the time by which its arrival counts
// as later than it was. The call that counts as the first to arrive passes first. So a
// class goes before those with a greater turn, and no call waits for ever: it passes before
// all calls of another class that arrive later by the difference.
type turn time.Duration

// The turns of starts. Calls of pods that have a sandbox go first, so that pods become ready
// one after the other and not all at the end.
const (
	inSandbox  = turn(0)
	newSandbox = turn(time.Minute)
)

// The turns of ends. The containers of all pods are stopped before sandboxes, and sandboxes
// before anything is removed: first what runs ends, and last what costs nothing is cleaned
// up. The stops of a pod go before all others if another pod waits for its end.
const (
	stopAwaited   = -turn(time.Minute)
	stopContainer = turn(0)
	stopSandbox   = turn(time.Minute)
	removal       = turn(2 * time.Minute)
)

// gate bounds the number of calls that a runtime works on at the same time.
type gate struct {
	mu     sync.Mutex
	places int
	// used is the number of calls that have a place, killing that of those that have lent it
	// and whose grace period has ended, see place.lend.
	used, killing int
	// waiting has the calls that wait, in their order. None of them is open, see open.
	waiting []*waiter
	// stopping is the number of calls under way that stop a container with a grace period.
	// The patience begins anew with the first of them.
	stopping int
	patience patience
}

// waiter is a call that waits for a place.
type waiter struct {
	turn turn
	// at is when the call arrived, plus its turn.
	at   time.Time
	pass chan struct{} // closed when the call has a place
}

func newGate(places int) *gate { return &gate{places: places} }

// enter waits for a place, and fails when ctx ends. If awaited is closed, the call passes
// before others from then on; awaited may be nil.
func (g *gate) enter(ctx context.Context, t turn, awaited <-chan struct{}) (*place, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	arrived := time.Now()
	g.mu.Lock()
	if g.open(t) {
		g.used++
		g.mu.Unlock()
		return g.hold(), nil
	}
	w := &waiter{turn: t, at: arrived.Add(time.Duration(t)), pass: make(chan struct{})}
	g.queue(w)
	g.mu.Unlock()
	for {
		select {
		case <-w.pass:
			return g.hold(), nil
		case <-awaited:
			awaited = nil
			g.mu.Lock()
			if g.unqueue(w) {
				w.turn = min(t, stopAwaited)
				w.at = arrived.Add(time.Duration(w.turn))
				g.queue(w)
				g.admit()
			}
			g.mu.Unlock()
		case <-ctx.Done():
			g.mu.Lock()
			defer g.mu.Unlock()
			if !g.unqueue(w) { // it got a place when ctx ended
				g.used--
				g.admit()
			}
			return nil, ended(ctx)
		}
	}
}

// open reports whether a call has a place at once. The runtime kills containers whose grace
// period has ended without being asked. Stop signals wait only while it has many to kill:
// each of them may be one more kill soon. Everything else waits for the kills. g.mu is held.
func (g *gate) open(t turn) bool {
	if t <= stopContainer {
		return g.used < g.places && g.killing/2 < g.places // places may be math.MaxInt
	}
	return g.used+g.killing < g.places
}

// queue adds a waiting call, behind those with the same time. g.mu is held.
func (g *gate) queue(w *waiter) {
	i, _ := slices.BinarySearchFunc(g.waiting, w, func(a, b *waiter) int { return cmp.Or(a.at.Compare(b.at), -1) })
	g.waiting = slices.Insert(g.waiting, i, w)
}

// unqueue removes a waiting call, and reports false if it does not wait any more. g.mu is
// held.
func (g *gate) unqueue(w *waiter) bool {
	i := slices.Index(g.waiting, w)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// admit gives the places that are free to waiting calls. While the first one waits for
// kills, stop signals behind it need not. g.mu is held.
func (g *gate) admit() {
	for {
		i := slices.IndexFunc(g.waiting, func(w *waiter) bool { return g.open(w.turn) })
		if i < 0 {
			return
		}
		g.used++
		close(g.waiting[i].pass)
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
}

// place is the place of a call in a gate, from enter to leave.
type place struct {
	g     *gate
	began time.Time
	// timer ends the present step: the time in which the call has the place, or has lent it.
	timer *time.Timer

	// The following are guarded by g.mu.

	state placeState
	left  bool // the call has returned
	// grace and patience are set by lend; see there.
	grace, patience time.Duration
}

type placeState int

const (
	held    placeState = iota
	lent               // until the grace period ends
	killing            // after it
	gone               // maxHold or maxKill has passed, or the call has returned
)

// hold returns a place that is counted as used already. The call keeps it for maxHold.
func (g *gate) hold() *place {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := &place{g: g, began: time.Now()}
	p.timer = time.AfterFunc(maxHold, p.step)
	return p
}

// leave gives the place back. It may be called more than once.
func (p *place) leave() {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if p.left {
		return
	}
	p.left = true
	p.timer.Stop()
	if now := time.Now(); now.Sub(p.began) < p.grace {
		p.g.patience = p.g.patience.exited(now, now.Sub(p.began))
	}
	p.become(gone)
	if p.grace > 0 {
		p.g.stopping--
	}
}

// lend is for a call that stops a container, and is made at once. If it does not return
// within the patience of the gate, it only waits for the container to exit, and another
// call has its place. When the grace period has ended, the runtime kills the container.
func (p *place) lend(grace time.Duration) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	if p.left || grace <= 0 {
		return
	}
	if p.g.stopping++; p.g.stopping == 1 {
		p.g.patience = newPatience(p.began)
	}
	p.grace = grace
	if p.g.patience.now < grace {
		p.patience = p.g.patience.now
		p.timer.Reset(p.patience)
	}
}

// step is called when the place has been in its state for as long as it may.
func (p *place) step() {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	switch {
	case p.left:
	case p.state == held && p.patience > 0:
		p.g.patience = p.g.patience.outlasted(time.Now(), p.patience)
		p.timer.Reset(p.grace - p.patience)
		p.become(lent)
	case p.state == lent:
		p.timer.Reset(maxKill)
		p.become(killing)
	default:
		p.become(gone)
	}
}

// become changes the state, and gives a place that is free to a waiting call. g.mu is held.
func (p *place) become(next placeState) {
	count := func(s placeState, n int) {
		switch s {
		case held:
			p.g.used += n
		case killing:
			p.g.killing += n
		}
	}
	count(p.state, -1)
	p.state = next
	count(next, 1)
	p.g.admit()
}
