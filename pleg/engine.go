package pleg

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// engine is what all generators are: the relist, the inspections and, if there is
// a source of events, the hints, around the records.
type engine struct {
	lister runtime.Lister
	source runtime.EventSource // nil: none
	cache  Cache
	opts   EventedOptions

	started atomic.Bool
	health  health
	// hurry asks for a relist. Its one place is enough: requests that find it taken
	// are served by the relist that it stands for, which has not begun yet.
	hurry chan struct{}
	// out has no buffer: what nobody has taken yet stays in the dirty set, where it
	// can be merged.
	out chan PodEvents

	// lists and landings bring results to the goroutine of Run. They have no buffer;
	// who sends gives up when the context ends. news come from the event stream.
	lists    chan relisting
	landings chan landing
	news     news

	// The rest belongs to the goroutine of Run.

	records records
	dirty   dirtySet
	flights flights
	pace    pace
	alarms  alarms
	// began is when the last list call did, zero before the first.
	began time.Time
	// early is when the relist after the one under way is due, if that is earlier than
	// after the period.
	early time.Time
	// stream is what was last known of the event stream, and complained says that it
	// was reported broken since it was good.
	stream     streamState
	complained bool
	// suspects are pods that a relist found changed and no hint has told of yet.
	suspects map[types.UID]runtime.PodRef
	// strayed says that a hint has come, since the last list call began, of which only a
	// relist can tell what it was about.
	strayed bool
	// counted is what Metrics received last, nil before that.
	counted *Counts
	// tasks are the goroutines that Run has started.
	tasks sync.WaitGroup
}

// relisting is what a list call came to.
type relisting struct {
	pods   []*runtime.Pod
	window window
	// epoch of the stream in which it began. strayed says that it is to find what
	// hints were about.
	epoch   uint64
	strayed bool
	metrics Relisted
	err     error
}

// landing is what an inspection came to.
type landing struct {
	flight *flight
	status *runtime.PodStatus
	err    error
}

// newEngine expects options with their defaults; without a source those of the
// stream do not matter.
func newEngine(lister runtime.Lister, source runtime.EventSource, cache Cache, opts EventedOptions) *engine {
	return &engine{
		lister:   lister,
		source:   source,
		cache:    cache,
		opts:     opts,
		hurry:    make(chan struct{}, 1),
		out:      make(chan PodEvents),
		lists:    make(chan relisting),
		landings: make(chan landing),
		news:     news{wake: make(chan struct{}, 1)},
		flights:  flights{limit: opts.MaxInspections},
		pace:     pace{tight: opts.RelistPeriod, safety: opts.SafetyPeriod, maxMisses: opts.MaxMisses, period: opts.RelistPeriod},
		suspects: map[types.UID]runtime.PodRef{},
	}
}

// Watch implements [Generator].
func (e *engine) Watch() <-chan PodEvents { return e.out }

// Healthy implements [Generator]: it returns nil if Run is under way and a list
// call has succeeded within the threshold; where relists are farther apart than
// [Options].RelistPeriod, within the threshold after the next one was due.
func (e *engine) Healthy() error { return e.health.check(e.opts.RelistThreshold, e.opts.RelistPeriod) }

// Relist asks for a relist at once, instead of after the period. It does not
// block. What happened before the call is seen by a relist that begins after it;
// requests that come before that one begins share it.
func (e *engine) Relist() {
	select {
	case e.hurry <- struct{}{}:
	default:
	}
}

// Run implements [Generator].
func (e *engine) Run(ctx context.Context) error {
	if !e.started.CompareAndSwap(false, true) {
		return fmt.Errorf("pleg: %w", runtime.ErrAlreadyRunning)
	}
	ctx, cancel := context.WithCancel(ctx)
	e.health.begin()
	defer func() {
		cancel()
		e.tasks.Wait()
		e.health.end()
		close(e.out)
	}()
	if e.source != nil {
		e.tasks.Go(func() { e.watch(ctx) })
	}
	e.loop(ctx)
	return nil
}

// loop is the one goroutine that owns the records, the dirty set and the flights.
func (e *engine) loop(ctx context.Context) {
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	var set time.Time // what alarm was set to
	e.alarms.relist = time.Now()
	for {
		now := time.Now()
		e.tick(ctx, now)
		e.launch(ctx, now)
		e.count()
		if next := e.alarms.next(); next.IsZero() {
			alarm.Stop()
			set = next
		} else if !next.Equal(set) {
			alarm.Reset(next.Sub(now))
			set = next
		}

		// Offer the head of the dirty set, if there is one.
		var out chan<- PodEvents
		var head PodEvents
		if e.dirty.head != nil {
			out, head = e.out, e.dirty.head.PodEvents
		}

		select {
		case <-ctx.Done():
			return
		case out <- head:
			e.dirty.pop()
		case <-alarm.C:
			set = time.Time{}
		case <-e.hurry:
			e.relistBy(time.Now())
		case <-e.news.wake:
			e.heed()
		case l := <-e.lists:
			e.heed() // what has been told is not missed
			e.listed(l)
		case l := <-e.landings:
			e.landed(l)
		}
	}
}

// tick does what is due.
func (e *engine) tick(ctx context.Context, now time.Time) {
	if ring(&e.alarms.judge, now) {
		e.judge()
	}
	if ring(&e.alarms.again, now) {
		e.act(e.records.again(e.cache.Now()))
	}
	if ring(&e.alarms.stall, now) {
		e.relistSoon()
	}
	if ring(&e.alarms.relist, now) {
		e.list(ctx, now)
	}
}

// relistBy has a relist begin at t at the latest.
func (e *engine) relistBy(t time.Time) {
	due := &e.alarms.relist
	if e.records.listing {
		due = &e.early
	}
	if due.IsZero() || t.Before(*due) {
		*due = t
	}
}

// relistSoon has a relist begin at once where the next one would be long in coming,
// but not sooner after the last one than the tight period.
func (e *engine) relistSoon() {
	if e.pace.wide() {
		e.relistBy(e.began.Add(e.pace.tight))
	}
}

// list starts a list call.
func (e *engine) list(ctx context.Context, now time.Time) {
	select {
	case <-e.hurry: // who asked before is served by this one
	default:
	}
	l := relisting{epoch: e.pace.epoch, strayed: e.strayed, metrics: Relisted{Began: now}}
	e.strayed = false
	if !e.began.IsZero() {
		l.metrics.Interval = now.Sub(e.began)
	}
	e.began = now
	e.health.called()
	l.window.began = e.cache.Now()
	e.act(e.records.begin(e.cache.Seen("")))
	e.tasks.Go(func() {
		lctx, cancel := context.WithTimeout(ctx, e.opts.ListTimeout)
		defer cancel()
		l.pods, l.err = e.lister.ListPods(lctx)
		l.window.ended = e.cache.Now()
		l.metrics.Took, l.metrics.Err = time.Since(now), l.err
		select {
		case e.lists <- l:
		case <-ctx.Done():
		}
	})
}

// listed takes in what a list call came to.
func (e *engine) listed(l relisting) {
	wait := e.opts.RelistPeriod
	if l.err != nil {
		e.records.unlisted()
		if e.health.failed(l.err) {
			e.opts.Logger.Error(l.err, "Cannot list the pods of the runtime; trying again", "period", wait)
		}
	} else {
		out := e.records.relisted(l.pods, l.window, e.cache.ForgetUntil)
		e.cache.Listed(l.pods, l.window.began)
		e.act(out)
		if l.strayed || e.strayed {
			out.unheard = nil
		}
		if e.pace.relisted(l.epoch) {
			e.suspect(out.unheard)
		}
		wait = e.pace.period
	}
	now := time.Now()
	e.alarms.relist = now.Add(wait)
	if !e.early.IsZero() {
		e.relistBy(e.early)
		e.early = time.Time{}
	}
	if l.err == nil && e.health.succeeded(e.alarms.relist.Sub(now)) {
		e.opts.Logger.Info("The runtime lists its pods again")
	}
	l.metrics.Due = e.alarms.relist
	e.opts.Metrics.Relisted(l.metrics)
}

// count passes the counts on to Metrics when they have changed.
func (e *engine) count() {
	counts := e.records.counts
	if e.records.round == 0 || e.counted != nil && *e.counted == counts {
		return
	}
	if e.counted == nil {
		e.counted = new(Counts)
	}
	*e.counted = counts
	e.opts.Metrics.Counted(counts)
}

// act does what the records ask for.
func (e *engine) act(o outcome) {
	log := e.opts.Logger.V(4)
	verbose := log.Enabled()
	for i := range o.ready {
		if verbose {
			log.Info("Pod has changed", "pod", o.ready[i].Pod, "events", o.ready[i].Events)
		}
		e.dirty.add(o.ready[i].Pod, o.ready[i].Events)
	}
	e.flights.wait(o.inspect)
	for _, ref := range o.disputed {
		e.opts.Logger.Error(errDispute, "The cached status of a pod may be wrong", "pod", ref)
	}
	if o.hit {
		e.pace.hit()
	}
	if o.recheck {
		e.lookAgain()
	}
}

// lookAgain has failed inspections tried again, and other pods looked at again,
// after the tight period.
func (e *engine) lookAgain() {
	if e.alarms.again.IsZero() {
		e.alarms.again = time.Now().Add(e.pace.tight)
	}
}

// launch starts inspections for the pods that wait, as far as there is place.
func (e *engine) launch(ctx context.Context, now time.Time) {
	e.alarms.place = time.Time{}
	if len(e.flights.waiting) == 0 {
		return
	}
	e.flights.expire(now)
	for {
		f, wake := e.flights.next(now)
		if f == nil {
			if wake > 0 {
				e.alarms.place = now.Add(wake)
			}
			return
		}
		if e.alarms.stall.IsZero() {
			e.alarms.stall = now.Add(patience)
		}
		e.tasks.Go(func() {
			ictx, cancel := context.WithTimeout(ctx, e.opts.InspectTimeout)
			defer cancel()
			l := landing{flight: f}
			l.status, l.err = e.cache.Newer(ictx, f.ref, f.after)
			select {
			case e.landings <- l:
			case <-ctx.Done():
			}
		})
	}
}

// landed takes in what an inspection came to.
func (e *engine) landed(l landing) {
	r := l.flight.record
	now := time.Now()
	e.flights.land(l.flight, now)
	e.alarms.stall = time.Time{}
	if e.flights.busy > 0 { // this one's landing says nothing of the others
		e.alarms.stall = now.Add(patience)
	}
	if l.err == nil {
		e.act(e.records.landed(r, append(e.cache.Seen(r.ref.UID), l.status)))
		return
	}
	r.failed()
	log := e.opts.Logger.WithValues("pod", r.ref, "failures", r.failures)
	if r.failures == 1 {
		log.Error(l.err, "Cannot inspect a pod that has changed; its events wait until that succeeds")
		e.relistSoon() // it may be the runtime that is ill, and not the pod
	} else {
		log.V(4).Info("Still cannot inspect a pod that has changed", "err", l.err)
	}
	if e.pace.wide() {
		e.lookAgain()
	}
}

var errDispute = errors.New("the runtime's list and its status of a pod keep disagreeing")
