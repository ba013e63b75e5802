package status

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// probePeriod is the time between two probes of a sink that fails for all pods. It gets up to half
// of it more, so that nodes spread. It is also the least time between two repetitions of all failed calls.
const probePeriod = 2 * time.Second

func probeWait() time.Duration { return probePeriod + rand.N(probePeriod/2) }

// breaker is a circuit breaker. It opens when calls for two pods have failed, and none has succeeded
// since: then the sink is at fault. While it is open, failed calls are not repeated by the back-off of
// each pod: the entries wait in stage parked, and one of them is tried in each probePeriod. A status
// that has not failed yet is tried once nonetheless. A success closes the breaker, and all failed
// calls are repeated.
type breaker struct {
	open bool
	// first is the entry of the first call that has failed since the last success; nil if there is none.
	first *entry
	// parked has the entries in stage parked, in the order of their failures.
	parked []*entry
	// probeAt is the time of the next probe while the breaker is open.
	probeAt time.Time
	// closedAt is when the breaker was closed last, and repeatedAt the time for which all failed calls were
	// scheduled last.
	closedAt, repeatedAt time.Time
}

// failed schedules the repetition of a call that has failed, and returns the delay. opened
// is true if the breaker opens.
func (s *schedule) failed(r *entry, now time.Time) (delay time.Duration, opened bool) {
	b := &s.breaker
	switch {
	case b.first == nil:
		b.first = r
	case b.first != r && !b.open:
		b.open, b.probeAt, opened = true, now.Add(probeWait()), true
	}
	if b.open && !r.fresh {
		s.park(r)
		return b.probeAt.Sub(now), opened
	}
	if r.since.Before(b.closedAt) {
		r.failures = 1 // the sink was at fault when the call began
	}
	delay = s.backoff.After(r.failures)
	s.wait(r, backingOff, now.Add(delay))
	return delay, opened
}

// succeeded closes the breaker. If it was open, or a refused call was accepted now, what failed or was
// refused is repeated: at most once in probePeriod, because otherwise each success of a sink that fails
// for some pods only would repeat the calls that fail.
func (s *schedule) succeeded(r *entry, now time.Time) {
	b := &s.breaker
	wasOpen := b.open
	b.open, b.first = false, nil
	if wasOpen {
		b.closedAt = now
	} else if !r.refused {
		return
	}
	at := now
	if next := b.repeatedAt.Add(probePeriod); next.After(now) {
		at = next
	}
	b.repeatedAt = at
	for _, other := range b.parked {
		s.wait(other, backingOff, at)
	}
	b.parked = nil
	for _, other := range s.timers {
		if (other.stage == backingOff && wasOpen || other.stage == deferred && other.refused && r.refused) &&
			other.at.After(at) {
			other.at = at
		}
	}
	heap.Init(&s.timers)
}

func (s *schedule) park(r *entry) {
	r.stage = parked
	s.breaker.parked = append(s.breaker.parked, r)
}

// unpark queues an entry in stage parked.
func (s *schedule) unpark(r *entry) {
	i := slices.Index(s.breaker.parked, r)
	s.breaker.parked = slices.Delete(s.breaker.parked, i, i+1)
	s.ready(r)
}

// probe queues the entry of the next probe, if its time has come.
func (s *schedule) probe(now time.Time) {
	if b := &s.breaker; b.open && len(b.parked) > 0 && !b.probeAt.After(now) {
		s.unpark(b.parked[0])
		b.probeAt = now.Add(probeWait())
	}
}
