package pleg

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Options are the settings of a generator; the zero value is good.
type Options struct {
	// Logger says what goes wrong in the runtime. Default: none.
	Logger logr.Logger
	// RelistPeriod is the time from the end of one list call to the beginning of the
	// next, and so the longest time that a failed inspection waits to be tried
	// again. Default: 1 s, kubelet's.
	RelistPeriod time.Duration
	// RelistThreshold is how long the generator counts as healthy after a list call
	// has succeeded. It is raised to twice RelistPeriod if it is less. Default:
	// 3 min, kubelet's.
	RelistThreshold time.Duration
	// ListTimeout bounds one list call. Default: 2 min, kubelet's
	// runtimeRequestTimeout.
	ListTimeout time.Duration
	// InspectTimeout bounds the inspection of one pod. Default: 30 s: far above what
	// a loaded runtime needs for a pod, and after it the pod is tried again.
	InspectTimeout time.Duration
	// MaxInspections is how many pods are inspected side by side. An inspection that
	// takes longer than a second no longer counts, so that hung ones do not keep
	// the place of others: at worst (1 + InspectTimeout in seconds) times as many
	// are under way, and one for each pod. Default: 16.
	MaxInspections int
}

func (o *Options) setDefaults() {
	if o.Logger.IsZero() {
		o.Logger = logr.Discard()
	}
	for _, d := range []struct {
		value *time.Duration
		std   time.Duration
	}{
		{&o.RelistPeriod, time.Second},
		{&o.RelistThreshold, 3 * time.Minute},
		{&o.ListTimeout, 2 * time.Minute},
		{&o.InspectTimeout, 30 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.std
		}
	}
	o.RelistThreshold = max(o.RelistThreshold, 2*o.RelistPeriod)
	if o.MaxInspections <= 0 {
		o.MaxInspections = 16
	}
}

// Generic is a [Generator] that needs nothing of the runtime but its list: it
// relists periodically and reports the differences. Build it with [NewGeneric].
type Generic struct {
	lister runtime.Lister
	cache  Cache
	opts   Options

	started atomic.Bool
	health  health
	// hurry asks for a relist. Its one place is enough: requests that find it taken
	// are served by the relist that it stands for, which has not begun yet.
	hurry chan struct{}
	// out has no buffer: what nobody has taken yet stays in the dirty set, where it
	// can be merged.
	out chan PodEvents

	// lists and landings bring results to the goroutine of Run. They have no buffer;
	// who sends gives up when the context ends.
	lists    chan relisting
	landings chan landing

	// The rest belongs to the goroutine of Run.

	records records
	dirty   dirtySet
	flights flights
	// checked is a mark: what had been read into the cache when it was drawn has been
	// compared with a list.
	checked runtime.Mark
	// tasks are the goroutines that Run has started.
	tasks sync.WaitGroup
}

// relisting is what a list call came to.
type relisting struct {
	pods []*runtime.Pod
	// known is what was read into the cache since the last successful relist.
	known  []*runtime.PodStatus
	window window
	err    error
}

// landing is what an inspection came to.
type landing struct {
	flight *flight
	mark   runtime.Mark
	err    error
}

// NewGeneric returns a generator over the lister. It reads changed pods into the
// cache, which must read from the same runtime.
func NewGeneric(lister runtime.Lister, cache Cache, opts Options) *Generic {
	opts.setDefaults()
	return &Generic{
		lister:   lister,
		cache:    cache,
		opts:     opts,
		hurry:    make(chan struct{}, 1),
		out:      make(chan PodEvents),
		lists:    make(chan relisting),
		landings: make(chan landing),
		flights:  flights{limit: opts.MaxInspections},
	}
}

// Watch implements [Generator].
func (g *Generic) Watch() <-chan PodEvents { return g.out }

// Healthy implements [Generator]: it returns nil if Run is under way and a list
// call has succeeded within the threshold.
func (g *Generic) Healthy() error { return g.health.check(g.opts.RelistThreshold) }

// Relist asks for a relist at once, instead of after the period. It does not
// block. What happened before the call is seen by a relist that begins after it;
// requests that come before that one begins share it.
func (g *Generic) Relist() {
	select {
	case g.hurry <- struct{}{}:
	default:
	}
}

// Run implements [Generator].
func (g *Generic) Run(ctx context.Context) error {
	if !g.started.CompareAndSwap(false, true) {
		return ErrAlreadyRunning
	}
	ctx, cancel := context.WithCancel(ctx)
	g.health.begin()
	defer func() {
		cancel()
		g.tasks.Wait()
		g.health.end()
		close(g.out)
	}()
	g.loop(ctx)
	return nil
}

// loop is the one goroutine that owns the records, the dirty set and the flights.
func (g *Generic) loop(ctx context.Context) {
	period := time.NewTimer(0) // the first relist is due at once
	defer period.Stop()
	// impatience fires when the oldest inspection is to make place for another.
	impatience := time.NewTimer(0)
	impatience.Stop()
	defer impatience.Stop()

	// While a list call is under way hurry is nil: requests stay in their channel
	// and are served by the relist after it, since this one has begun.
	hurry := g.hurry
	for {
		g.launch(ctx, impatience)

		// Offer the head of the dirty set, if there is one.
		var out chan<- PodEvents
		var head PodEvents
		if g.dirty.head != nil {
			out, head = g.out, g.dirty.head.PodEvents
		}

		select {
		case <-ctx.Done():
			return
		case out <- head:
			g.dirty.pop()
		case <-period.C:
			select {
			case <-hurry: // who asked before is served by this one
			default:
			}
			hurry = nil
			g.list(ctx)
		case <-hurry:
			period.Stop()
			hurry = nil
			g.list(ctx)
		case l := <-g.lists:
			g.listed(l)
			hurry = g.hurry
			period.Reset(g.opts.RelistPeriod)
		case l := <-g.landings:
			g.landed(l)
		case <-impatience.C: // launch sees to it
		}
	}
}

// list starts a list call.
func (g *Generic) list(ctx context.Context) {
	checked := g.checked
	g.tasks.Go(func() {
		lctx, cancel := context.WithTimeout(ctx, g.opts.ListTimeout)
		defer cancel()
		var l relisting
		l.window.began = g.cache.Now()
		l.known = g.cache.Since(checked)
		l.pods, l.err = g.lister.ListPods(lctx, true)
		l.window.ended = g.cache.Now()
		select {
		case g.lists <- l:
		case <-ctx.Done():
		}
	})
}

// listed takes in what a list call came to.
func (g *Generic) listed(l relisting) {
	if l.err != nil {
		if g.health.failed(l.err) {
			g.opts.Logger.Error(l.err, "Cannot list the pods of the runtime; trying again", "period", g.opts.RelistPeriod)
		}
		return
	}
	if g.health.succeeded() {
		g.opts.Logger.Info("The runtime lists its pods again")
	}
	g.checked = l.window.began
	g.act(g.records.relisted(l.pods, l.known, l.window, g.cache.ForgetUntil))
}

// act does what the records ask for.
func (g *Generic) act(o outcome) {
	log := g.opts.Logger.V(4)
	verbose := log.Enabled()
	for i := range o.ready {
		if verbose {
			log.Info("Pod has changed", "pod", o.ready[i].Pod, "events", o.ready[i].Events)
		}
		g.dirty.add(o.ready[i].Pod, o.ready[i].Events)
	}
	g.flights.wait(o.inspect)
	for _, ref := range o.disputed {
		g.opts.Logger.Error(errDispute, "The cached status of a pod may be wrong", "pod", ref)
	}
}

// launch starts inspections for the pods that wait, as far as there is place.
func (g *Generic) launch(ctx context.Context, impatience *time.Timer) {
	if len(g.flights.waiting) == 0 {
		return
	}
	now := time.Now()
	g.flights.expire(now)
	for {
		f, wake := g.flights.next(now)
		if f == nil {
			if wake > 0 {
				impatience.Reset(wake)
			}
			return
		}
		g.tasks.Go(func() {
			ictx, cancel := context.WithTimeout(ctx, g.opts.InspectTimeout)
			defer cancel()
			l := landing{flight: f}
			var status *runtime.PodStatus
			if status, l.err = g.cache.Newer(ictx, f.ref, f.after); l.err == nil {
				l.mark = status.Mark
			}
			select {
			case g.landings <- l:
			case <-ctx.Done():
			}
		})
	}
}

// landed takes in what an inspection came to.
func (g *Generic) landed(l landing) {
	r := l.flight.record
	g.flights.land(l.flight)
	if l.err != nil {
		r.failed()
		log := g.opts.Logger.WithValues("pod", r.ref, "failures", r.failures)
		if r.failures == 1 {
			log.Error(l.err, "Cannot inspect a pod that has changed; its events wait until that succeeds")
		} else {
			log.V(4).Info("Still cannot inspect a pod that has changed", "err", l.err)
		}
		return
	}
	g.act(r.landed(l.mark))
}

// health is the progress of the list call. It is safe for concurrent use.
type health struct {
	mu sync.Mutex
	// began is when Run was called; zero when it is not under way.
	began time.Time
	// last is the end of the last list call that succeeded; zero before there was
	// one.
	last time.Time
	// err is what the last list call failed with, nil if it succeeded.
	err error
}

func (h *health) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = time.Now()
}

func (h *health) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = time.Time{}
}

// succeeded notes a success, and reports whether it ends a row of failures.
func (h *health) succeeded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	again := h.err != nil
	h.last, h.err = time.Now(), nil
	return again
}

// failed notes a failure, and reports whether it begins a row of them.
func (h *health) failed(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.err == nil
	h.err = err
	return first
}

var errDispute = errors.New("the runtime's list and its status of a pod keep disagreeing")

var (
	errNotRunning = errors.New("the pod lifecycle event generator is not running")
	errNoReply    = errors.New("the list call has not returned")
)

func (h *health) check(threshold time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.began.IsZero() {
		return errNotRunning
	}
	cause := h.err
	if cause == nil {
		cause = errNoReply
	}
	now := time.Now()
	if h.last.IsZero() {
		return fmt.Errorf("no list of the runtime's pods has succeeded since the start %s ago: %w",
			now.Sub(h.began).Round(time.Millisecond), cause)
	}
	if silent := now.Sub(h.last); silent > threshold {
		return fmt.Errorf("no list of the runtime's pods has succeeded for %s, threshold is %s: %w",
			silent.Round(time.Millisecond), threshold, cause)
	}
	return nil
}
