// Package underway knows which step of a pod's life is under way, and since when, so that a pod that waits can say what
// for.
//
// Each pod has a [Track]. The pod syncer resets it with each call of a worker, and asks it now and then for a step that
// takes long. Steps that follow each other are set by [Track.Set], which costs some nanoseconds. A call of something
// that may block, such as a plugin, names itself by [Begin], which finds the track in the context.
package underway

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Step is one of the steps that follow each other. It is made once, and compared by its pointer.
type Step struct {
	Name string
	// Hidden means that a call in the step is shown without the name of the step.
	Hidden bool
}

// Track has the steps of one pod that are under way. The zero value is ready.
type Track struct {
	step atomic.Pointer[Step]

	mu sync.Mutex
	// seen is the step that was under way when Slow was called last, at the time looked, and since when it was, or
	// somewhat later.
	seen          *Step
	since, looked time.Time
	// calls are those that have named themselves, in the order in which they began.
	calls []*Call
}

// Reset starts the track for a new call of a worker.
func (t *Track) Reset(now time.Time) {
	t.step.Store(nil)
	t.mu.Lock()
	t.seen, t.since, t.looked = nil, now, now
	t.mu.Unlock()
}

// Set makes the step the one that is under way; nil if none is. A nil track does nothing.
func (t *Track) Set(s *Step) {
	if t != nil {
		t.step.Store(s)
	}
}

// Slow is what a pod waits for. The zero value is nothing.
type Slow struct {
	// Container is the container that waits, "" for the pod as a whole.
	Container string
	// Name is what is under way, and Since since when.
	Name  string
	Since time.Time
}

// Slow returns the innermost step that is under way for as long as limit. The time of a step that follows another one
// is that of the call of Slow before.
func (t *Track) Slow(now time.Time, limit time.Duration) Slow {
	step := t.step.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	if step != t.seen {
		t.seen, t.since = step, t.looked
	}
	t.looked = now
	var slow Slow
	if step != nil && now.Sub(t.since) >= limit {
		slow = Slow{Name: step.Name, Since: t.since}
	}
	for _, c := range t.calls {
		if now.Sub(c.since) < limit {
			break
		}
		slow = Slow{Since: c.since}
		for part := c; part.outer != nil; part = part.outer {
			slow.join(strings.TrimSpace(part.what + " " + part.name))
			if slow.Container == "" {
				slow.Container = part.container
			}
		}
		if step != nil && !step.Hidden {
			slow.join(step.Name)
		}
	}
	return slow
}

// join puts the name of the outer step before the name.
func (s *Slow) join(outer string) {
	if s.Name != "" {
		outer += ": "
	}
	s.Name = outer + s.Name
}

type key struct{}

// Call is a call that is under way, and the context for what it calls.
type Call struct {
	context.Context
	track *Track
	// outer is the call of which this one is a part; nil in the context of With, which is no call.
	outer                 *Call
	container, what, name string
	since                 time.Time
}

// Value implements [context.Context].
func (c *Call) Value(k any) any {
	if k == (key{}) {
		return c
	}
	return c.Context.Value(k)
}

// End ends the call.
func (c *Call) End() {
	t := c.track
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = slices.DeleteFunc(t.calls, func(other *Call) bool { return other == c })
}

// With returns a context with the track.
func With(ctx context.Context, t *Track) context.Context { return &Call{Context: ctx, track: t} }

// From returns the track of the context, nil if it has none.
func From(ctx context.Context) *Track {
	if c, ok := ctx.Value(key{}).(*Call); ok {
		return c.track
	}
	return nil
}

// Begin notes that a call is under way until its End. What and name say what is waited for, such as "volume" and
// "data"; the container is "" if the whole pod waits. Nothing is noted if the context has no track.
func Begin(ctx context.Context, container, what, name string) *Call {
	c := &Call{Context: ctx, container: container, what: what, name: name}
	outer, ok := ctx.Value(key{}).(*Call)
	if !ok || outer.track == nil {
		return c
	}
	c.track, c.outer, c.since = outer.track, outer, time.Now()
	c.track.mu.Lock()
	defer c.track.mu.Unlock()
	c.track.calls = append(c.track.calls, c)
	return c
}
