package pleg

import (
	"slices"
	"time"
)

// initialLimit is the limit at the beginning of each burst: low enough for a small
// machine, and high enough that one hung pod leaves room for others.
const initialLimit = 4

// noise is the difference between the medians of two rounds that has no meaning.
const noise = time.Millisecond

// limit is the number of concurrent inspections. It finds the largest number with which
// the runtime is as fast as with a few. With more, calls only wait for each other inside
// the runtime, and the calls of the workers wait with them.
//
// A burst is a time in which inspections wait for a slot. It is divided into rounds of
// as many inspections as the limit. After a round about as fast as the fastest of the
// burst, the limit grows by half; after a round more than twice as slow, it is halved;
// otherwise it stays. The speed of a round is its median, so that one pod with many
// containers, or a hung one, has no effect. Nothing is kept from one burst to the next,
// because the load of the runtime may have changed.
//
// Only max must be set.
type limit struct {
	// max is the largest value.
	max int
	// current is the limit, 0 at the beginning of a burst.
	current int
	// fastest is the median of the fastest round of the burst, 0 before the first.
	fastest time.Duration
	// round has the durations of the current round.
	round []time.Duration
}

// value returns the limit.
func (l *limit) value() int {
	if l.current == 0 {
		l.current = initialLimit
	}
	return min(l.current, l.max)
}

// measure records the duration of an inspection, or its time so far when it loses its
// slot.
func (l *limit) measure(took time.Duration) {
	l.round = append(l.round, took)
	now := l.value()
	if len(l.round) < now {
		return
	}
	slices.Sort(l.round)
	median := l.round[len(l.round)/2]
	l.round = l.round[:0]
	switch {
	case l.fastest == 0:
		l.fastest = median
		l.grow(now)
	case median <= l.fastest+max(l.fastest/4, noise):
		l.fastest = min(l.fastest, median)
		l.grow(now)
	case now == 1:
		// The runtime has become slower for other reasons: this is its speed now.
		l.fastest = median
		l.grow(now)
	case median > 2*(l.fastest+noise):
		l.current = now / 2
	}
}

func (l *limit) grow(now int) { l.current = min(now+(now+1)/2, l.max) }

// reset begins a new burst.
func (l *limit) reset() { *l = limit{max: l.max, round: l.round[:0]} }
