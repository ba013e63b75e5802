package pleg

import (
	"slices"
	"time"
)

// firstBound is where the bound of each burst begins: few enough not to hurt a
// small machine, and more than one hung pod leaves room for others.
const firstBound = 4

// jitter is a difference between two rounds that says nothing.
const jitter = time.Millisecond

// bound finds out how many inspections side by side the runtime answers as fast
// as it answers a few. Beyond that number calls only wait for each other inside
// the runtime, and make those of the workers wait too.
//
// A burst is the time in which inspections have to wait for place. It goes in
// rounds: as many landings as may be under way. After a round that was about as
// fast as the fastest of the burst the bound grows by half; after one that took
// more than twice as long it is halved; in between it stays. What counts of a
// round is its median, so that one pod with many containers, or a hung one, does
// not decide. Nothing is kept from burst to burst: what the runtime did then says
// little about now.
//
// The zero value is ready for a burst.
type bound struct {
	// current is the bound, 0 at the beginning of a burst.
	current int
	// fastest is the median of the fastest round of the burst, 0 before the first.
	fastest time.Duration
	// round has the durations of the landings since the last change of round.
	round []time.Duration
}

// value returns how many may be side by side, limit at most.
func (b *bound) value(limit int) int {
	if b.current == 0 {
		b.current = firstBound
	}
	return min(b.current, limit)
}

// landed takes in how long an inspection took, or has taken so far when it is
// given up waiting for. limit is what value was called with.
func (b *bound) landed(took time.Duration, limit int) {
	b.round = append(b.round, took)
	now := b.value(limit)
	if len(b.round) < now {
		return
	}
	slices.Sort(b.round)
	median := b.round[len(b.round)/2]
	b.round = b.round[:0]
	switch {
	case b.fastest == 0:
		b.fastest = median
		b.current = grown(now, limit)
	case median <= b.fastest+max(b.fastest/4, jitter):
		b.fastest = min(b.fastest, median)
		b.current = grown(now, limit)
	case now == 1:
		// No fewer are possible, so it is not our doing: this is how fast it is now.
		b.fastest = median
		b.current = grown(now, limit)
	case median > 2*(b.fastest+jitter):
		b.current = now / 2
	}
}

// ended begins a new burst.
func (b *bound) ended() { *b = bound{round: b.round[:0]} }

func grown(now, limit int) int { return min(now+(now+1)/2, limit) }
