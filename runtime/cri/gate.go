package cri

import (
	"context"
	goruntime "runtime"
	"sync"
	"time"
)

// patience is how long a call may keep its place in the gate. One that takes longer
// goes on, but counts no more: a few pods whose network hangs must not keep the
// others from starting.
const patience = 3 * time.Second

// defaultStarts is how many calls that start something are under way at once. A
// runtime does not get faster by more of them than this for each processor,
// while each one's answer comes later.
func defaultStarts() int { return max(8, 2*goruntime.GOMAXPROCS(0)) }

// urgency tells who goes first through a gate.
type urgency int

const (
	// newSandbox is for calls that begin a pod.
	newSandbox urgency = iota
	// inSandbox is for calls that bring forward a pod that has begun; they go first,
	// so that pods get ready one after the other and not all at the end.
	inSandbox
	urgencies
)

// gate bounds how many calls are under way at once. Those who wait go in the order
// in which they came, the more urgent ones before the others.
type gate struct {
	mu     sync.Mutex
	free   int
	queues [urgencies][]chan struct{}
}

func newGate(places int) *gate { return &gate{free: places} }

// enter waits for a place, and fails if ctx has ended. leave gives the place back; it may
// be called more than once.
func (g *gate) enter(ctx context.Context, u urgency) (leave func(), err error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return g.hold(), nil
	}
	turn := make(chan struct{})
	g.queues[u] = append(g.queues[u], turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return g.hold(), nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range g.queues[u] {
		if c == turn {
			g.queues[u] = append(g.queues[u][:i:i], g.queues[u][i+1:]...)
			return nil, ended(ctx)
		}
	}
	g.pass() // the turn came at the same moment
	return nil, ended(ctx)
}

// hold returns what gives the place back: the caller, or time.
func (g *gate) hold() func() {
	leave := sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.pass()
	})
	t := time.AfterFunc(patience, leave)
	return func() {
		t.Stop()
		leave()
	}
}

// pass hands a place to the next who waits. g.mu is held.
func (g *gate) pass() {
	for u := urgencies - 1; u >= 0; u-- {
		if q := g.queues[u]; len(q) > 0 {
			close(q[0])
			g.queues[u] = q[1:]
			return
		}
	}
	g.free++
}
