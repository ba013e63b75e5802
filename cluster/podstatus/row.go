package podstatus

import (
	"math/rand/v2"
	"time"
)

// probePeriod is the time between two calls that find out whether a server that fails for all pods
// answers again. It gets up to half of it more, so that nodes spread.
const probePeriod = 2 * time.Second

// maxRefusal is how long a refused status may be a probe. Then it is not the server that is at
// fault.
const maxRefusal = 15 * time.Minute

// row are calls that write for pods and have failed one after the other, without one that succeeded. Those
// of two pods mean that the fault is the server's: then what has failed is not repeated for
// each pod by its own back-off, but for one pod in each probePeriod, whichever comes. A status
// that is new has its own first call nonetheless. Sink.mu guards it.
type row struct {
	// last is the entry of the last call, and pods the number of changes from one entry to another
	// in the row, and one more.
	last *entry
	pods int
	// probeAt is the time of the next probe.
	probeAt time.Time
}

// down reports whether the fault is the server's.
func (r *row) down() bool { return r.pods > 1 }

// failed adds the failure of a call for e.
func (s *Sink) failed(e *entry, now time.Time) {
	if s.row.last == e {
		return
	}
	s.row.last = e
	s.row.pods++
	if s.row.pods == 2 {
		s.row.probeAt = now.Add(probeWait())
		s.poke()
	}
}

// succeeded ends the row. All that failed is put on the agenda, at most once in probePeriod: a
// server that fails some calls only is not asked more often for those that succeed.
func (s *Sink) succeeded(now time.Time) {
	down := s.row.down()
	s.row = row{}
	if !down {
		return
	}
	at := s.resent.Add(probePeriod)
	if at.Before(now) {
		at = now
	}
	s.resent = at
	s.repeatAll(at)
}

// repeatAll puts all that failed on the agenda.
func (s *Sink) repeatAll(at time.Time) {
	for _, e := range s.entries {
		if e.unsent {
			s.plan(e, at)
		}
	}
	s.poke()
}

// park reports whether an attempt for the entry is to wait for the server. mu is held.
func (s *Sink) park(e *entry) bool {
	probe := e == s.probe
	if probe {
		s.probe = nil
	}
	return !probe && s.row.down() && e.failures > 0 && e.tried == e.own
}

// takeProbe returns the entry that is to be tried now, nil if there is none, and the time of the
// next probe; zero if there will be none. mu is held.
func (s *Sink) takeProbe(now time.Time) (*entry, time.Time) {
	if !s.row.down() || now.Before(s.row.probeAt) {
		return nil, s.row.probeAt
	}
	s.row.probeAt = now.Add(probeWait())
	s.probe = nil
	for _, e := range s.entries { // in no order: each has its turn
		switch {
		case e.unsent && e.failures > 0:
		case e.refused != nil && e.refused == e.own && now.Sub(e.refusedAt) < maxRefusal:
			e.sendAgain = now
		default:
			continue
		}
		s.probe = e
		return e, s.row.probeAt
	}
	s.row = row{}
	return nil, time.Time{}
}

func probeWait() time.Duration { return probePeriod + rand.N(probePeriod/2) }
