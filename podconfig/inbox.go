package podconfig

import (
	"sync"

	v1 "k8s.io/api/core/v1"
)

// maxInbox is how many pods the deliveries in the inbox may have before the source that
// has added the last one merges them itself. It bounds the memory of the inbox. It is
// large enough that a busy source rarely waits for a batch that is planned meanwhile:
// a batch of some hundred pods takes as long as some hundred deltas.
const maxInbox = 1024

// inbox has the deliveries of all sources that are not merged yet, in their order. Sources
// add to it without waiting for the merger.
type inbox struct {
	mu         sync.Mutex
	deliveries []delivery
	pods       int        // in the deliveries
	empty      []delivery // to be used again
	frozen     bool       // after Freeze
}

// delivery is a snapshot or a delta of a source.
type delivery struct {
	source   *registration
	snapshot bool
	pods     []*v1.Pod // the snapshot
	delta    Delta
}

// size returns the number of pods, and at least 1.
func (d *delivery) size() int { return max(1, len(d.pods)+len(d.delta.Update)+len(d.delta.Remove)) }

// add adds a delivery of a run of a source, unless deliveries have no effect any more. It
// reports whether the inbox was empty, and whether it is full.
func (in *inbox) add(s *sink, d delivery) (first, full bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if s.closed || in.frozen {
		return false, false
	}
	s.delivered = s.delivered || d.snapshot
	in.deliveries = append(in.deliveries, d)
	in.pods += d.size()
	return len(in.deliveries) == 1, in.pods >= maxInbox
}

// ignores reports whether deliveries of a run have no effect any more.
func (in *inbox) ignores(s *sink) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return s.closed || in.frozen
}

// close ends a run of a source. It reports whether the run has delivered a snapshot.
func (in *inbox) close(s *sink) (delivered bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	s.closed = true
	return s.delivered
}

// freeze ignores all further deliveries.
func (in *inbox) freeze() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.frozen = true
}

// take empties the inbox. The result is valid until it is passed to recycle.
func (in *inbox) take() []delivery {
	in.mu.Lock()
	defer in.mu.Unlock()
	taken := in.deliveries
	in.deliveries, in.empty, in.pods = in.empty, nil, 0
	return taken
}

// recycle keeps the memory of merged deliveries for the next ones.
func (in *inbox) recycle(merged []delivery) {
	clear(merged)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.empty = merged[:0]
}
