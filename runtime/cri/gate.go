package cri

import (
	"context"
	goruntime "runtime"
	"sync"
	"time"
)

// maxHold is how long a call keeps its place in the gate. A longer call continues
// without one: a few pods whose network setup hangs must not keep others from starting.
const maxHold = 3 * time.Second

// defaultStarts returns the default of Options.MaxParallelStarts. With more calls at
// once the throughput of a runtime does not increase, while the latency of each call
// does.
func defaultStarts() int { return max(8, 2*goruntime.GOMAXPROCS(0)) }

// urgency is the priority of a call at a gate.
type urgency int

const (
	// newSandbox is for calls that begin a pod.
	newSandbox urgency = iota
	// inSandbox is for calls of pods that have a sandbox. They pass first, so that pods
	// become ready one after the other and not all at the end.
	inSandbox
	urgencies
)

// gate bounds the number of calls in progress. Waiting calls pass in the order of their
// arrival, more urgent ones first.
type gate struct {
	mu     sync.Mutex
	free   int
	queues [urgencies][]chan struct{}
}

func newGate(places int) *gate { return &gate{free: places} }

// enter waits for a place, and fails when ctx ends. leave gives the place back; it may be
// called more than once.
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
	g.pass() // it got a place when ctx ended
	return nil, ended(ctx)
}

// hold returns the function that gives a place back. It is also called after maxHold.
func (g *gate) hold() func() {
	leave := sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.pass()
	})
	t := time.AfterFunc(maxHold, leave)
	return func() {
		t.Stop()
		leave()
	}
}

// pass gives a place to the next waiting call. g.mu is held.
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
