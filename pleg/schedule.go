package pleg

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// hintDelay is how long after a relist a hint about what the relist found may come.
// Events follow the state of the runtime, which a list shows; healthy streams deliver
// them within milliseconds.
const hintDelay = time.Second

// schedule decides when to relist, from what the event stream has proven to be worth.
//
// Without a stream the period is short. A stream that stands makes it long. A stream
// that was only opened doubles it with each relist that finds nothing unreported. A
// stream that misses a change makes it short again, until a hint has been of use; then
// it grows by doubling.
//
// It belongs to one goroutine. It does not read the clock.
type schedule struct {
	short, long time.Duration
	maxMisses   int

	// relistAt is when the next relist begins, at the end of the list call at the earliest.
	relistAt time.Time
	// began is when the last list call began, zero before the first; listing is whether
	// it is under way.
	began   time.Time
	listing bool
	// period is the time from the end of a relist to the beginning of the next.
	period time.Duration

	// opened says that there is a stream as far as is known, established that it has
	// shown signs of life. epoch counts the changes of both.
	opened, established bool
	epoch               uint64
	// relistEpoch is the epoch in which the last list call began.
	relistEpoch uint64
	// reconciled says that a relist has succeeded that began in this epoch. What happened
	// before the stream could report it is known then, so from now on the stream answers
	// for what relists find.
	reconciled bool
	// unmatched says that, since the last list call began, a hint has come that no known
	// pod matches. excused is what it was when that call began. If either is true, what
	// the relist finds may be what such a hint was about, so it does not count as missed.
	unmatched, excused bool

	// unreported are pods that a relist found changed and no hint was about yet. They
	// count as missed at judgeAt.
	unreported map[types.UID]runtime.PodRef
	judgeAt    time.Time
	// delivered says that a hint has come since the last relist that was judged.
	delivered bool
	// misses counts the relists that found missed changes since a hint was of use last.
	misses int
	// lossy says that there was a miss, and no hint has been of use since: the period
	// stays short. regrow says that there was one, and the period has to grow by doubling.
	// Both outlive the connection: the stream may be as lossy when it is opened anew.
	lossy, regrow bool
}

// relistDue returns when the next relist is to begin, zero while one is under way.
func (s *schedule) relistDue() time.Time {
	if s.listing {
		return time.Time{}
	}
	return s.relistAt
}

// relistBy has a relist begin at t at the latest.
func (s *schedule) relistBy(t time.Time) {
	if s.relistAt.IsZero() || t.Before(s.relistAt) {
		s.relistAt = t
	}
}

// relistSoon has a relist begin now if the period is long, but not sooner after the
// last one than the short period.
func (s *schedule) relistSoon() {
	if s.stretched() {
		s.relistBy(s.began.Add(s.short))
	}
}

// stretched reports whether it may be long until the next relist.
func (s *schedule) stretched() bool { return s.period > s.short }

// begin notes that a list call begins. It returns the time since the last one began, 0
// for the first.
func (s *schedule) begin(now time.Time) (interval time.Duration) {
	if !s.began.IsZero() {
		interval = now.Sub(s.began)
	}
	s.began, s.listing, s.relistAt = now, true, time.Time{}
	s.relistEpoch = s.epoch
	s.excused, s.unmatched = s.unmatched, false
	return interval
}

// failed notes that the list call has failed.
func (s *schedule) failed(now time.Time) { s.end(now.Add(s.short)) }

// succeeded notes that the list call has succeeded. unreported are the pods that it found
// changed without a hint.
func (s *schedule) succeeded(unreported []runtime.PodRef, now time.Time) {
	s.compare(unreported, now)
	s.end(now.Add(s.period))
}

// compare compares what a relist found with what the stream reported, if the stream
// answers for it.
func (s *schedule) compare(unreported []runtime.PodRef, now time.Time) {
	if !s.opened || s.relistEpoch != s.epoch {
		return
	}
	if !s.reconciled {
		s.reconciled = true
		s.complete()
		return
	}
	if !s.excused && !s.unmatched {
		for _, ref := range unreported {
			if s.unreported == nil {
				s.unreported = map[types.UID]runtime.PodRef{}
			}
			s.unreported[ref.UID] = ref
		}
	}
	switch {
	case len(s.unreported) == 0:
		s.complete()
	case s.judgeAt.IsZero():
		s.judgeAt = now.Add(hintDelay)
	}
}

// end has the next relist begin at t, unless an earlier one was requested meanwhile.
func (s *schedule) end(t time.Time) {
	s.listing = false
	s.relistBy(t)
}

// hinted notes a hint about a pod.
func (s *schedule) hinted(uid types.UID) {
	s.delivered = true
	delete(s.unreported, uid)
}

// unmatchedHint notes a hint that no known pod matches.
func (s *schedule) unmatchedHint() {
	s.delivered, s.unmatched = true, true
	s.relistBy(s.began.Add(s.short))
}

// usefulHint notes that a hint has led to a change that was not known yet.
func (s *schedule) usefulHint() {
	s.misses = 0
	s.lossy = false
}

// streamOpened notes that a stream is being opened.
func (s *schedule) streamOpened() {
	s.opened, s.established = true, false
	s.newEpoch()
}

// streamEstablished notes that the stream stands. A relist has to find what happened
// before.
func (s *schedule) streamEstablished(now time.Time) {
	s.established = true
	s.newEpoch()
	s.forgive() // the stream may have been established after what was found
	s.relistBy(now)
}

// streamEnded notes that there is no stream any more. If the period relied on it, a
// relist begins at once.
func (s *schedule) streamEnded(now time.Time) {
	if s.established || s.stretched() {
		s.relistBy(now)
	}
	s.opened, s.established = false, false
	s.newEpoch()
	s.forgive()
}

func (s *schedule) newEpoch() {
	s.epoch++
	s.period = s.short
	s.reconciled, s.delivered = false, false
	s.misses = 0
}

// forgive drops what relists have found unreported.
func (s *schedule) forgive() {
	clear(s.unreported)
	s.judgeAt = time.Time{}
}

// judge ends the time that hints have to come in. It returns the pods that the stream
// has missed, and whether to give the stream up: because it delivers nothing, or has
// missed too much.
func (s *schedule) judge(now time.Time) (missed []runtime.PodRef, giveUp bool) {
	for _, ref := range s.unreported {
		missed = append(missed, ref)
	}
	s.forgive()
	if len(missed) == 0 {
		s.complete()
		return nil, false
	}
	silent := s.established && !s.delivered
	s.delivered = false
	s.misses++
	s.lossy, s.regrow = true, true
	s.period = s.short
	s.relistBy(now.Add(s.period))
	return missed, silent || s.misses > s.maxMisses
}

// complete notes that the stream has reported all that a relist found.
func (s *schedule) complete() {
	s.delivered = false
	switch {
	case s.lossy:
	case s.established && !s.regrow:
		s.period = s.long
	default:
		s.period = min(2*s.period, s.long)
		s.regrow = s.regrow && s.period < s.long
	}
}
