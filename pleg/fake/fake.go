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

// errNotRunning is returned by Healthy before and after Run.
var errNotRunning = errors.New("pleg/fake: Run is not under way")

// Options are the settings of a [PLEG]. The zero value is valid.
type Options struct {
	// Cache that a pod is read into before its events are offered to the reader. If the
	// pod cannot be read, its events wait until the next Push for it. nil: no reads.
	Cache runtime.StatusCache
}

// PLEG is a [pleg.Generator] whose events are those of Push. Relist, Hold and Release do
// nothing. It is safe for concurrent use.
type PLEG struct {
	pleg.Base
	opts Options
	out  chan pleg.PodEvents
	// wake has room for one: it is full when Run has to look at pending.
	wake chan struct{}
	cond cond.Cond

	mu      sync.Mutex
	started bool
	running bool
	health  error
	// pending are the pods whose events wait for the reader, in order.
	pending []pleg.PodEvents
	// unread are the pods among them that were not read into the cache since their last
	// event.
	unread map[runtime.PodRef]bool
	taken  []pleg.PodEvents
}

var _ pleg.Generator = (*PLEG)(nil)

// New returns a generator without events. It is healthy while it runs.
func New(opts Options) *PLEG {
	return &PLEG{opts: opts, out: make(chan pleg.PodEvents), wake: make(chan struct{}, 1),
		unread: map[runtime.PodRef]bool{}}
}

// Push adds events of a pod. It does not wait for the reader. Events that wait already are
// not added again.
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
			// The slice that is offered to the reader is not changed.
			p.pending[i].Events = append(slices.Clip(p.pending[i].Events), ev)
		}
	}
	p.unread[pod] = p.opts.Cache != nil
	select {
	case p.wake <- struct{}{}:
	default: // there is a signal already
	}
	p.cond.Changed()
}

// SetHealth sets the error of Healthy; nil makes the generator healthy again.
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
		return fmt.Errorf("pleg/fake: %w", runtime.ErrAlreadyRunning)
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

// read reads the pods with new events into the cache.
func (p *PLEG) read(ctx context.Context) {
	p.mu.Lock()
	var refs []runtime.PodRef
	for _, e := range p.pending {
		if p.unread[e.Pod] {
			refs = append(refs, e.Pod)
			p.unread[e.Pod] = false // a Push meanwhile sets it again
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

// next returns the events to offer, and the channel, which is nil if there are none.
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

// took notes that the reader has received events. Those that came after they were offered
// stay.
func (p *PLEG) took(e pleg.PodEvents) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = append(p.taken, e)
	i := slices.IndexFunc(p.pending, func(q pleg.PodEvents) bool { return q.Pod == e.Pod })
	left := slices.DeleteFunc(slices.Clone(p.pending[i].Events),
		func(ev pleg.Event) bool { return slices.Contains(e.Events, ev) })
	if len(left) > 0 {
		p.pending[i].Events = left
	} else {
		p.pending = slices.Delete(p.pending, i, i+1)
		delete(p.unread, e.Pod)
	}
	p.cond.Changed()
}

// Taken returns the events that the reader has received, in order.
func (p *PLEG) Taken() []pleg.PodEvents {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.taken)
}

// Pending returns the events that wait for the reader.
func (p *PLEG) Pending() []pleg.PodEvents {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.pending)
}

// UntilTaken returns when no events wait for the reader any more. The reader has received
// them then; it may not have handled them.
func (p *PLEG) UntilTaken(ctx context.Context) error {
	return p.cond.Until(ctx, func() bool { return len(p.Pending()) == 0 },
		func() string { return fmt.Sprint(p.Pending()) })
}
