package status

import (
	"container/heap"
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// stage is the position of an entry on its way to the sink.
type stage int

const (
	idle       stage = iota // no call is due
	queued                  // in schedule.queue or schedule.slowQueue
	calling                 // a call is under way
	hanging                 // a call is under way that has exceeded its deadline
	backingOff              // a call has failed and is repeated later
	parked                  // a call has failed, and the breaker is open; a change comes before
	deferred                // the sink has asked for a later call, or has refused the status; a change comes before
)

// call is the part of an entry that belongs to the schedule.
type call struct {
	stage stage
	// seq is the position of the entry in the order in which calls became due.
	seq uint64
	// failures is the number of calls in a row that have failed, or that the sink has refused if refused is
	// true.
	failures int
	refused  bool
	// fresh means that what is due has changed since the last call began.
	fresh bool
	// urgent means that others wait for the change that is due: readiness, or a final phase.
	urgent bool
	// calledUrgent means that the call under way is urgent. Then urgent is about later changes.
	calledUrgent bool
	// urgentAt is when the entry became urgent last.
	urgentAt time.Time
	// slow means that the last call exceeded its deadline, countedSlow that the call under
	// way counts in schedule.slowCalls.
	slow, countedSlow bool
	// since is the beginning of the call that is under way.
	since time.Time
	// at is when the timer of the entry fires: at the end of the back-off in stage backingOff,
	// at the end of the wait in stage deferred, and at the time from which the call hangs in stage
	// calling. index is the position in schedule.timers in these stages.
	at    time.Time
	index int
}

// schedule decides which entry's call is made next, and when. Entries whose call is
// due wait in the order in which they became due, the urgent ones before all others. An entry
// is in one stage at a time, so no two calls for one UID overlap.
//
// Of limit calls at a time, at most slowLimit are for entries whose last call exceeded
// its deadline. So a sink that does not answer for some pods remains available to others.
type schedule struct {
	limit, slowLimit int
	backoff          flow.Backoff

	urgentQueue, queue, slowQueue []*entry
	nextSeq                       uint64
	// calls counts the entries in stage calling, slowCalls those of them that were
	// taken from slowQueue.
	calls, slowCalls int
	// hung has the entries in stage hanging.
	hung map[*entry]struct{}
	// timers has the entries in the stages calling, backingOff and deferred.
	timers  timers
	breaker breaker
}

func newSchedule(limit int, b flow.Backoff) schedule {
	return schedule{limit: limit, slowLimit: max(1, limit/2), backoff: b, hung: map[*entry]struct{}{}}
}

// ready queues an entry. It has no timer and no call under way.
func (s *schedule) ready(r *entry) {
	r.stage = queued
	r.seq = s.nextSeq
	s.nextSeq++
	switch {
	case r.slow:
		s.slowQueue = append(s.slowQueue, r)
	case r.urgent:
		s.urgentQueue = append(s.urgentQueue, r)
	default:
		s.queue = append(s.queue, r)
	}
}

// prioritize makes the entry urgent.
func (s *schedule) prioritize(r *entry) {
	if r.urgent {
		return
	}
	r.urgent = true
	if i := slices.Index(s.queue, r); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		s.urgentQueue = append(s.urgentQueue, r)
	}
}

// next returns the entry whose call begins now. It returns nil if no call is due or limit
// is reached. The call hangs if it has not returned at the time hangs.
func (s *schedule) next(now, hangs time.Time) *entry {
	if s.calls >= s.limit {
		return nil
	}
	from := &s.queue
	if len(s.urgentQueue) > 0 {
		from = &s.urgentQueue
	} else if len(s.slowQueue) > 0 && s.slowCalls < s.slowLimit &&
		(len(s.queue) == 0 || s.slowQueue[0].seq < s.queue[0].seq) {
		from = &s.slowQueue
	}
	if len(*from) == 0 {
		return nil
	}
	r := (*from)[0]
	(*from)[0] = nil
	*from = (*from)[1:]
	r.stage, r.since, r.at, r.countedSlow = calling, now, hangs, r.slow
	r.urgent, r.calledUrgent, r.fresh = false, r.urgent, false
	s.calls++
	if r.countedSlow {
		s.slowCalls++
	}
	heap.Push(&s.timers, r)
	return r
}

// uncount ends the counting of a call that has returned or hangs.
func (s *schedule) uncount(r *entry) {
	s.calls--
	if r.countedSlow {
		s.slowCalls--
	}
}

// returned ends the call for the entry.
func (s *schedule) returned(r *entry) {
	if r.stage == hanging {
		delete(s.hung, r)
	} else {
		heap.Remove(&s.timers, r.index)
		s.uncount(r)
	}
	r.stage = idle
}

// wait schedules a call for the entry, which is then in stage backingOff or deferred.
func (s *schedule) wait(r *entry, st stage, at time.Time) {
	r.stage, r.at = st, at
	heap.Push(&s.timers, r)
}

// changed ends the wait of the entry for something else than the end of a back-off.
func (s *schedule) changed(r *entry) {
	switch {
	case r.stage == parked && r.fresh:
		s.unpark(r)
	case r.stage == deferred:
		heap.Remove(&s.timers, r.index)
		r.stage = idle
	}
}

// advance has a failed call repeated now, or probePeriod after it began.
func (s *schedule) advance(r *entry, now time.Time) {
	at := r.since.Add(probePeriod)
	if now.After(at) {
		at = now
	}
	if at.Before(r.at) {
		r.at = at
		heap.Fix(&s.timers, r.index)
	}
}

// expire handles the timers that have fired: it queues the entries whose back-off or
// wait has ended, and the probe of the breaker, and returns those whose call hangs from now on.
func (s *schedule) expire(now time.Time) (hung []*entry) {
	for len(s.timers) > 0 && !s.timers[0].at.After(now) {
		r := heap.Pop(&s.timers).(*entry)
		switch {
		case r.stage == calling:
			s.uncount(r)
			r.stage = hanging
			s.hung[r] = struct{}{}
			hung = append(hung, r)
		case r.stage == backingOff && s.breaker.open && !r.fresh:
			s.park(r)
		default:
			s.ready(r)
		}
	}
	s.probe(now)
	return hung
}

// nextTimer returns the time at which expire has something to do; zero if there is none.
func (s *schedule) nextTimer() (at time.Time) {
	if len(s.timers) > 0 {
		at = s.timers[0].at
	}
	if b := &s.breaker; b.open && len(b.parked) > 0 && (at.IsZero() || b.probeAt.Before(at)) {
		at = b.probeAt
	}
	return at
}

// timers is a heap of entries by call.at.
type timers []*entry

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at.Before(t[j].at) }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push implements [heap.Interface].
func (t *timers) Push(x any) {
	r := x.(*entry)
	r.index = len(*t)
	*t = append(*t, r)
}

// Pop implements [heap.Interface].
func (t *timers) Pop() any {
	old := *t
	n := len(old) - 1
	r := old[n]
	old[n] = nil
	*t = old[:n]
	return r
}
