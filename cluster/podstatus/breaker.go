package podstatus

import (
	"math/rand/v2"
	"time"
)

// probePeriod is the time between two probes of a server that fails for all pods. It gets up to
// half of it more, so that nodes spread.
const probePeriod = 2 * time.Second

// maxRefusal is how long a refused status may be a probe. A server that refuses it for longer is
// not at fault.
const maxRefusal = 15 * time.Minute

// breaker is a circuit breaker of the calls that write for pods. It opens when calls for two pods
// have failed, and none has succeeded since: then the server is at fault. While it is open, what has
// failed is not repeated by the back-off of each pod. Instead one of these pods, at random, is tried
// in each probePeriod. A new status of a pod is tried once nonetheless. Sink.mu guards it.
type breaker struct {
	open bool
	// first is the pod of the first call that has failed since the last success; nil if there is none.
	first *entry
	// probeAt is the time of the next probe while the breaker is open. probe is the entry of the
	// present one until its attempt begins; otherwise nil.
	probeAt time.Time
	probe   *entry
}

// failed adds the failure of a call for e.
func (s *Sink) failed(e *entry, now time.Time) {
	b := &s.breaker
	switch {
	case b.first == nil:
		b.first = e
	case b.first != e && !b.open:
		b.open, b.probeAt = true, now.Add(probeWait())
		s.poke()
	}
}

// succeeded closes the breaker, and repeats what has failed if it was open.
func (s *Sink) succeeded(now time.Time) {
	if s.breaker.open {
		s.repeatFailed(now)
	}
	s.breaker = breaker{}
}

// repeatFailed puts all that failed on the agenda, at most once in probePeriod: otherwise each
// success of a server that fails for some pods only would repeat the calls that fail.
func (s *Sink) repeatFailed(now time.Time) {
	if !s.repeatedAt.After(now) { // else it is on the agenda for that time
		s.repeatedAt = s.repeatedAt.Add(probePeriod)
		if s.repeatedAt.Before(now) {
			s.repeatedAt = now
		}
	}
	for _, e := range s.entries {
		if e.unsent {
			s.plan(e, s.repeatedAt)
		}
	}
	s.poke()
}

// allows reports whether the breaker allows an attempt for the entry. It allows a probe once, and a
// status that has not failed yet. mu is held.
func (s *Sink) allows(e *entry) bool {
	if e == s.breaker.probe {
		s.breaker.probe = nil
		return true
	}
	return !s.breaker.open || e.failures == 0 || e.tried != e.own
}

// takeProbe returns the entry of the next probe, nil if there is none now, and the time of the probe
// after it, zero if there will be none. mu is held.
func (s *Sink) takeProbe(now time.Time) (*entry, time.Time) {
	if !s.breaker.open || now.Before(s.breaker.probeAt) {
		return nil, s.breaker.probeAt
	}
	s.breaker.probeAt, s.breaker.probe = now.Add(probeWait()), nil
	for _, e := range s.entries { // in no order: each has its turn
		switch {
		case e.unsent && e.failures > 0:
		case e.refused != nil && e.refused == e.own && now.Sub(e.refusedAt) < maxRefusal:
			e.sendAgain = now
		default:
			continue
		}
		s.breaker.probe = e
		return e, s.breaker.probeAt
	}
	s.breaker = breaker{}
	return nil, time.Time{}
}

func probeWait() time.Duration { return probePeriod + rand.N(probePeriod/2) }
