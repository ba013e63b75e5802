package pleg

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// hintDelay is the time after a relist in which a hint about a change that it has found
// may still come. A runtime changes its state before it sends the event; healthy streams
// deliver events within milliseconds.
const hintDelay = time.Second

// maxMisses is the number of relists that may find changes without a hint before the event
// stream is closed and opened again. A hint that leads to a change ends the count.
const maxMisses = 5

// phase is the state of the event stream.
type phase int

const (
	closed      phase = iota
	opened            // it is open or being opened, and has not delivered anything
	established       // it was announced, or has delivered a hint
)

// trust is what the misses of the event stream, also of earlier ones, say about it. A new
// stream may be as lossy as the one before.
type trust int

const (
	trusted trust = iota // the period is long once the stream is established
	lossy                // it has missed a change: the period is short until a hint is useful
	growing              // a hint was useful after a miss: the period grows by doubling until it is long
)

// reconciliation is what relists have done since the phase of the stream changed.
type reconciliation int

const (
	outstanding reconciliation = iota // no relist has begun
	begun                             // a relist has begun that finds the changes from before
	reconciled                        // it has succeeded: the stream should report what later relists find
)

// schedule decides when to relist. That depends on how many of the changes that relists
// find the event stream has reported, by a hint, before or within hintDelay.
//
// The period is short without a stream, and long with an established one. With a stream
// that was only opened, it doubles after each relist whose changes were all reported.
// When the stream misses a change, the period is short until a hint has been useful, and
// then grows by doubling. A hint is useful if it has led to a change.
//
// schedule belongs to one goroutine. It does not read the clock.
type schedule struct {
	short, long time.Duration

	// relistAt is when the next relist begins, at the end of the list call at the earliest.
	relistAt time.Time
	// began is when the last list call began, zero before the first; listing is whether
	// it is under way.
	began   time.Time
	listing bool
	// period is the time from the end of a relist to the beginning of the next.
	period time.Duration

	phase          phase
	trust          trust
	reconciliation reconciliation

	// unmatched is above 0 if a hint that matches no pod has come since the list call
	// before the last one began. It may have been about a change that the relist finds, so
	// the change does not count as missed. Each beginning of a list call subtracts 1.
	unmatched int
	// unreported has the pods that a relist found changed and that no hint was about yet.
	// They count as missed at missedAt.
	unreported map[types.UID]runtime.PodRef
	missedAt   time.Time
	// delivered is true if a hint has come since the last check for missed changes.
	delivered bool
	// misses counts the relists with missed changes since the last useful hint.
	misses int
}

// relistDue returns when the next relist is to begin, zero while one is under way.
func (s *schedule) relistDue() time.Time {
	if s.listing {
		return time.Time{}
	}
	return s.relistAt
}

// relistBy makes the next relist begin at t, or earlier if it is due earlier.
func (s *schedule) relistBy(t time.Time) {
	if s.relistAt.IsZero() || t.Before(s.relistAt) {
		s.relistAt = t
	}
}

// relistSoon makes the next relist begin the short period after the last one, or now if
// that time has passed. It does nothing if the period is short anyway.
func (s *schedule) relistSoon() {
	if s.stretched() {
		s.relistBy(s.began.Add(s.short))
	}
}

// stretched reports whether the period is longer than the short one.
func (s *schedule) stretched() bool { return s.period > s.short }

// begin notes that a list call begins. It returns the time since the last one began, 0
// for the first.
func (s *schedule) begin(now time.Time) (interval time.Duration) {
	if !s.began.IsZero() {
		interval = now.Sub(s.began)
	}
	s.began, s.listing, s.relistAt = now, true, time.Time{}
	s.unmatched = max(0, s.unmatched-1)
	if s.reconciliation == outstanding {
		s.reconciliation = begun
	}
	return interval
}

// failed notes that the list call has failed.
func (s *schedule) failed(now time.Time) { s.end(now.Add(s.short)) }

// succeeded notes that the list call has succeeded. unreported has the pods that it found
// changed without a hint.
func (s *schedule) succeeded(unreported []runtime.PodRef, now time.Time) {
	s.checkReported(unreported, now)
	s.end(now.Add(s.period))
}

// checkReported determines whether the stream has reported the changes that a relist
// found, or has to report them within hintDelay.
func (s *schedule) checkReported(unreported []runtime.PodRef, now time.Time) {
	if s.phase == closed || s.reconciliation == outstanding {
		return
	}
	if s.reconciliation == begun {
		s.reconciliation = reconciled
		s.allReported()
		return
	}
	if s.unmatched == 0 {
		for _, ref := range unreported {
			if s.unreported == nil {
				s.unreported = map[types.UID]runtime.PodRef{}
			}
			s.unreported[ref.UID] = ref
		}
	}
	switch {
	case len(s.unreported) == 0:
		s.allReported()
	case s.missedAt.IsZero():
		s.missedAt = now.Add(hintDelay)
	}
}

// end notes the end of the list call. The next relist begins at t, unless an earlier one
// was requested meanwhile.
func (s *schedule) end(t time.Time) {
	s.listing = false
	s.relistBy(t)
}

// hinted notes a hint about a pod.
func (s *schedule) hinted(uid types.UID) {
	s.delivered = true
	delete(s.unreported, uid)
}

// unmatchedHint notes a hint that matches no pod. A relist has to find its change.
func (s *schedule) unmatchedHint() {
	s.delivered, s.unmatched = true, 2
	s.relistBy(s.began.Add(s.short))
}

// usefulHint notes that a hint has led to a change.
func (s *schedule) usefulHint() {
	s.misses = 0
	if s.trust == lossy {
		s.trust = growing
	}
}

// streamOpened notes that a stream is being opened.
func (s *schedule) streamOpened() {
	s.enter(opened)
}

// streamEstablished notes that the stream is established. A relist has to find what
// happened before.
func (s *schedule) streamEstablished(now time.Time) {
	s.enter(established)
	s.clearUnreported() // the changes may have been before the stream was established
	s.relistBy(now)
}

// streamEnded notes that the stream has ended. If the period relied on it, a relist begins
// at once.
func (s *schedule) streamEnded(now time.Time) {
	if s.phase == established || s.stretched() {
		s.relistBy(now)
	}
	s.enter(closed)
	s.clearUnreported()
}

// enter begins a phase of the stream.
func (s *schedule) enter(p phase) {
	s.phase, s.reconciliation = p, outstanding
	s.period = s.short
	s.delivered, s.misses = false, 0
}

func (s *schedule) clearUnreported() {
	clear(s.unreported)
	s.missedAt = time.Time{}
}

// takeMissed is called at missedAt. It returns the pods whose change the stream has
// missed, and whether to give the stream up, because it delivers nothing or has missed
// too much.
func (s *schedule) takeMissed(now time.Time) (missed []runtime.PodRef, giveUp bool) {
	for _, ref := range s.unreported {
		missed = append(missed, ref)
	}
	s.clearUnreported()
	if len(missed) == 0 {
		s.allReported()
		return nil, false
	}
	silent := s.phase == established && !s.delivered
	s.delivered = false
	s.misses++
	s.trust = lossy
	s.period = s.short
	s.relistBy(now.Add(s.period))
	return missed, silent || s.misses > maxMisses
}

// allReported notes that the stream has reported all changes that a relist found.
func (s *schedule) allReported() {
	s.delivered = false
	switch {
	case s.trust == lossy:
	case s.trust == trusted && s.phase == established:
		s.period = s.long
	default:
		s.period = min(2*s.period, s.long)
		if s.trust == growing && s.period == s.long {
			s.trust = trusted
		}
	}
}
