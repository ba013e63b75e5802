package pleg

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// generator is what [Generic] and [Evented] have in common.
//
// The goroutine of Run owns the state; see loop. Other goroutines make the calls: one for
// the list call, one for each inspection, and one that keeps the event stream open. They
// pass their results to loop.
//
// The steps from a change in the runtime to the reader, and the files that have them:
//
//	stream.go    the event stream delivers a hint
//	mailbox.go   the mailbox passes the hint to loop, which compares it with the view
//	relist.go    or a relist is due (schedule.go), which passes its list to loop
//	podstates.go the list is compared with the view of each pod (diff.go, view.go), and an
//	             inspection is requested for a pod with a hint or a difference (podstate.go)
//	inspect.go   the inspection gets a slot and passes its status to loop
//	podstates.go the status is compared, and the events become pending (pending.go)
//	generator.go loop offers them to the reader
type generator struct {
	lister runtime.Lister
	source runtime.EventSource // nil: relists only
	cache  runtime.StatusCache
	opts   EventedOptions
	// waitForObserver is called when Run ends.
	waitForObserver func()

	started atomic.Bool
	health  health
	// requests has room for one request for a relist. Requests that find it full are
	// dropped: the relist for the one in it has not begun, so it serves them too.
	requests flow.Signal
	// out has no buffer: events stay in podStates.pending until the reader takes them, so
	// that later ones can be merged with them.
	out chan PodEvents
	// listed and inspected have no buffer. Their senders give up when the context ends.
	listed    chan *listCall
	inspected chan *inspection
	stream    mailbox

	// The rest belongs to the goroutine of Run.

	podStates podStates
	schedule  schedule
	// retryAt is the time when failed inspections are tried again and dead pods are
	// inspected once more; zero means with the next relist.
	retryAt time.Time
	// streamState is the state of the stream that was last taken from the mailbox.
	// loggedBroken is true if the last message in the log is that it is broken.
	streamState  streamState
	loggedBroken bool
	// counted has the counts that were measured last, nil before the first.
	counted *Counts
	// tasks are the goroutines that Run has started.
	tasks sync.WaitGroup
}

// newGenerator expects options with defaults. If source is nil, the options of the event
// stream are not used.
func newGenerator(lister runtime.Lister, source runtime.EventSource, cache runtime.StatusCache,
	opts EventedOptions) *generator {
	observer, wait := opts.Queued()
	opts.Observer = observer
	return &generator{
		lister:          lister,
		source:          source,
		cache:           cache,
		opts:            opts,
		waitForObserver: wait,
		requests:        flow.NewSignal(),
		out:             make(chan PodEvents),
		listed:          make(chan *listCall),
		inspected:       make(chan *inspection),
		stream:          mailbox{wake: flow.NewSignal()},
		podStates: podStates{inspections: inspections{limit: opts.MaxInspections}, log: opts.Logger.V(4),
			record: opts.Record},
		schedule: schedule{short: opts.RelistPeriod, long: opts.SafetyPeriod, period: opts.RelistPeriod},
	}
}

// Watch implements [Generator].
func (g *generator) Watch() <-chan PodEvents { return g.out }

// Healthy implements [Generator]. It returns nil while Run is under way and a list call
// has succeeded within [Options].RelistThreshold. Where relists are farther apart than
// RelistPeriod, the threshold is longer by the difference.
func (g *generator) Healthy() error {
	return g.health.check(g.opts.RelistThreshold, g.opts.RelistPeriod)
}

// Hold implements [Generator].
func (g *generator) Hold(uid types.UID) { g.stream.hold(uid) }

// Release implements [Generator].
func (g *generator) Release(uid types.UID) { g.stream.release(uid, g.cache.Now()) }

// Relist implements [Generator].
func (g *generator) Relist() {
	g.requests.Notify()
}

// Run implements [Generator].
func (g *generator) Run(ctx context.Context) error {
	if !g.started.CompareAndSwap(false, true) {
		return fmt.Errorf("pleg: %w", runtime.ErrAlreadyRunning)
	}
	ctx, cancel := context.WithCancel(ctx)
	g.health.begin()
	defer g.waitForObserver()
	defer func() {
		cancel()
		g.tasks.Wait()
		g.health.end()
		close(g.out)
	}()
	if g.source != nil {
		g.tasks.Go(func() { g.watch(ctx) })
	}
	g.loop(ctx)
	return nil
}

// loop owns the state of the generator until ctx ends. It starts calls that are due,
// handles results and hints, and offers events to the reader.
func (g *generator) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var set time.Time // when timer fires; zero: it does not run
	g.schedule.relistBy(time.Now())
	for {
		now := time.Now()
		g.startDue(ctx, now)
		g.startInspections(ctx, now)
		g.reportCounts()
		if at := g.wakeAt(); !at.Equal(set) {
			if set = at; at.IsZero() {
				timer.Stop()
			} else {
				timer.Reset(at.Sub(now))
			}
		}

		var out chan<- PodEvents
		next, ready := g.podStates.pending.first()
		if ready {
			out = g.out
		}
		select {
		case <-ctx.Done():
			return
		case out <- next:
			g.podStates.pending.removeFirst()
		case <-timer.C:
			set = time.Time{}
		case <-g.requests:
			g.schedule.relistBy(time.Now())
		case <-g.stream.wake:
			g.takeMail()
		case call := <-g.listed:
			g.takeMail() // the hints that are here already were not missed
			g.finishRelist(call)
		case i := <-g.inspected:
			g.finishInspection(i)
		}
	}
}

// startDue does what is due now. A deadline of zero means that there is nothing to do.
func (g *generator) startDue(ctx context.Context, now time.Time) {
	if due(g.schedule.missedAt, now) {
		g.reportMissed(now)
	}
	if due(g.retryAt, now) {
		g.retryAt = time.Time{}
		g.podStates.retry(g.cache.Now())
	}
	if due(g.podStates.inspections.stalledAt, now) {
		g.podStates.inspections.stalledAt = time.Time{}
		g.schedule.relistSoon() // the runtime may hang
	}
	if due(g.schedule.relistDue(), now) {
		g.startRelist(ctx, now)
	}
}

// wakeAt returns the first deadline, zero if there is none.
func (g *generator) wakeAt() (first time.Time) {
	for _, at := range [...]time.Time{
		g.schedule.missedAt, g.retryAt, g.podStates.inspections.stalledAt, g.podStates.inspections.slotAt(),
		g.schedule.relistDue(),
	} {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

func due(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// retrySoon sets retryAt, unless it is set.
func (g *generator) retrySoon(now time.Time) {
	if g.retryAt.IsZero() {
		g.retryAt = now.Add(g.opts.RelistPeriod)
	}
}

// reportCounts measures the counts when they have changed.
func (g *generator) reportCounts() {
	counts := g.podStates.counts
	if g.podStates.relists == 0 || g.counted != nil && *g.counted == counts {
		return
	}
	if g.counted == nil {
		g.counted = new(Counts)
	}
	*g.counted = counts
	g.opts.Measure.Emit(counts)
}
