package fake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
)

// errNotRunning is what a generator says of its health before and after Run.
var errNotRunning = errors.New("fake pod lifecycle event generator: Run is not under way")

// Cache is what the generator reads changed pods into; *runtime.Cache is one.
type Cache interface {
	Now() runtime.Mark
	Newer(ctx context.Context, ref runtime.PodRef, after runtime.Mark) (*runtime.PodStatus, error)
}

// Options are the settings of a [PLEG]; the zero value is good.
type Options struct {
	// Cache that pods are read into before their events are offered, as a real
	// generator does it. A pod that cannot be read keeps its events until the next
	// Push of it. nil: the test fills the cache, if there is one.
	Cache Cache
}

// PLEG is a [pleg.Generator] that generates what it is told. It is safe for
// concurrent use.
type PLEG struct {
	opts Options
	out  chan pleg.PodEvents
	// wake has room for one: it is full when Run is to look at what is pending.
	wake chan struct{}
	cond cond.Cond

	mu      sync.Mutex
	started bool
	running bool
	health  error
	// pending are the pods that were not taken, in the order in which they became
	// dirty.
	pending []pleg.PodEvents
	// unread are those among them whose status is not in the cache yet.
	unread map[runtime.PodRef]bool
	taken  []pleg.PodEvents
}

var _ pleg.Generator = (*PLEG)(nil)

// New returns a generator without events, which is healthy while it runs.
func New(opts Options) *PLEG {
	return &PLEG{opts: opts, out: make(chan pleg.PodEvents), wake: make(chan struct{}, 1), unread: map[runtime.PodRef]bool{}}
}

// Push makes events of a pod happen. It does not wait for a reader; events that
// the pod has waiting already are not doubled.
func (p *PLEG) Push(pod runtime.PodRef, events ...pleg.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.pending, func(e pleg.PodEvents) bool { return e.Pod == pod })
	if i < 0 {
		i = len(p.pending)
		p.pending = append(p.pending, pleg.PodEvents{Pod: pod})
	}
	for _, ev := range events {
		if !slices.Contains(p.pending[i].Events, ev) {
			// What was offered to the reader is not touched.
			p.pending[i].Events = append(slices.Clip(p.pending[i].Events), ev)
		}
	}
	p.unread[pod] = p.opts.Cache != nil
	p.poke()
}

// poke has Run look again, and all who wait. mu is held.
func (p *PLEG) poke() {
	select {
	case p.wake <- struct{}{}:
	default: // it is to look already
	}
	p.cond.Changed()
}

// SetHealth makes the generator unhealthy for that reason, or healthy with nil.
func (p *PLEG) SetHealth(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health = err
	p.cond.Changed()
}

// Healthy implements [pleg.Generator].
func (p *PLEG) Healthy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.health == nil && !p.running {
		return errNotRunning
	}
	return p.health
}

// Watch implements [pleg.Generator].
func (p *PLEG) Watch() <-chan pleg.PodEvents { return p.out }

// Run implements [pleg.Generator].
func (p *PLEG) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.started {
		p.mu.Unlock()
		return fmt.Errorf("fake pod lifecycle event generator: %w", runtime.ErrAlreadyRunning)
	}
	p.started, p.running = true, true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running, p.pending = false, nil
		close(p.out)
		p.cond.Changed()
	}()
	for ctx.Err() == nil {
		p.read(ctx)
		out, next := p.next()
		select {
		case <-ctx.Done():
		case <-p.wake:
		case out <- next:
			p.took(next)
		}
	}
	return nil
}

// read brings the pods whose events are new into the cache.
func (p *PLEG) read(ctx context.Context) {
	p.mu.Lock()
	var refs []runtime.PodRef
	for _, e := range p.pending {
		if p.unread[e.Pod] {
			refs = append(refs, e.Pod)
			p.unread[e.Pod] = false // one that is pushed meanwhile sets it again
		}
	}
	p.mu.Unlock()
	for _, ref := range refs {
		if _, err := p.opts.Cache.Newer(ctx, ref, p.opts.Cache.Now()); err != nil {
			p.mu.Lock()
			p.unread[ref] = true
			p.mu.Unlock()
		}
	}
}

// next is what is to be offered; the channel is nil if there is nothing.
func (p *PLEG) next() (chan<- pleg.PodEvents, pleg.PodEvents) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.pending {
		if !p.unread[e.Pod] {
			return p.out, pleg.PodEvents{Pod: e.Pod, Events: slices.Clone(e.Events)}
		}
	}
	return nil, pleg.PodEvents{}
}

// took notes that the reader has taken events. What came to the pod after they were
// offered stays.
func (p *PLEG) took(e pleg.PodEvents) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = append(p.taken, e)
	i := slices.IndexFunc(p.pending, func(q pleg.PodEvents) bool { return q.Pod == e.Pod })
	left := slices.DeleteFunc(slices.Clone(p.pending[i].Events), func(ev pleg.Event) bool { return slices.Contains(e.Events, ev) })
	if len(left) > 0 {
		p.pending[i].Events = left
	} else {
		p.pending = slices.Delete(p.pending, i, i+1)
		delete(p.unread, e.Pod)
	}
	p.cond.Changed()
}

// Taken returns what the reader has taken, in order.
func (p *PLEG) Taken() []pleg.PodEvents {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.taken)
}

// Pending returns what waits for the reader.
func (p *PLEG) Pending() []pleg.PodEvents {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.pending)
}

// UntilTaken returns when nothing waits for the reader any more. That it has taken
// an event does not say that it has acted on it.
func (p *PLEG) UntilTaken(ctx context.Context) error {
	return p.cond.Until(ctx, func() bool { return len(p.Pending()) == 0 }, func() string { return fmt.Sprint(p.Pending()) })
}
