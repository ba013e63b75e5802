package kubeletkit

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// The agent logs the parts that still run this long after it should have stopped, and then
// each time that the period has passed. The first is longer than the time after which a
// part itself logs the pods that it waits for, see internal/flow.
const (
	lateAfter  = 5 * time.Second
	latePeriod = time.Minute
)

// runningParts has the parts and components that run, by name.
type runningParts struct {
	mu    sync.Mutex
	names map[string]int
}

func newRunningParts() *runningParts { return &runningParts{names: map[string]int{}} }

func (r *runningParts) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[name]++
}

func (r *runningParts) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names[name]--; r.names[name] == 0 {
		delete(r.names, name)
	}
}

func (r *runningParts) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.names))
}

// wait returns the result of join, which waits for all parts. When ctx has ended and join
// does not return soon, it logs the parts that still run.
func (a *Agent) wait(ctx context.Context, running *runningParts, join func() error) error {
	joined := make(chan error, 1) // one value, of the one goroutine
	go func() { joined <- join() }()
	select {
	case err := <-joined:
		return err
	case <-ctx.Done():
	}
	began := time.Now()
	late := time.NewTimer(lateAfter)
	defer late.Stop()
	for {
		select {
		case err := <-joined:
			return err
		case <-late.C:
			a.log.Error(nil, "Agent cannot stop: parts have not returned although their context has ended; the log lines of a part name the pods that it waits for",
				"parts", running.list(), "after", time.Since(began))
			late.Reset(latePeriod)
		}
	}
}
