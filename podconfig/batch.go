package podconfig

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// batch is a sequence of changes, ordered by operation, that leads from the delivered pods
// to the desired ones.
type batch struct {
	// changes are the ones that the reader has not received.
	changes []batchedChange
	// begun is true when the reader has received some, but not all. Then the batch is
	// not planned again.
	begun bool
	// seen are the sources that have been seen when the reader has received the batch;
	// removed is how many removals of sources it has received then.
	seen    []*registration
	removed int
}

// batchedChange is a change of a batch. It is completed when it is the next one: a batch
// is often planned again before.
type batchedChange struct {
	op     Op
	source *registration
	// versions are the versions of the pods. They are not sorted before complete.
	versions []*version
	// pods are the pods that the reader receives. They are nil before complete.
	pods []*v1.Pod
}

// complete returns the change as the reader receives it, with the pods in the order in
// which they were first offered. The caller need not hold [Mux].mu: only the goroutine
// that calls complete uses the fields that it sets.
func (c *batchedChange) complete() Change {
	if len(c.pods) < len(c.versions) {
		slices.SortFunc(c.versions, func(a, b *version) int { return a.offer.compareOrder(b.offer) })
		c.pods = make([]*v1.Pod, len(c.versions))
		for i, v := range c.versions {
			c.pods[i] = v.forReader()
		}
	}
	return Change{Op: c.op, Source: c.source.name, Pods: c.pods}
}

// next returns the change that the reader is to receive next, or nil.
func (m *merger) next() *batchedChange {
	if !m.batch.begun {
		m.plan()
	}
	if len(m.batch.changes) == 0 {
		return nil
	}
	return &m.batch.changes[0]
}

// received notes that the reader has received the change that next has returned last.
func (m *merger) received() {
	change := m.batch.changes[0]
	m.batch.changes[0] = batchedChange{} // for the garbage collector
	m.batch.changes = m.batch.changes[1:]
	m.batch.begun = true
	for _, v := range change.versions {
		s := m.offers.state(v.pod.UID) // it may have been withdrawn since the batch was planned
		if change.op == Remove {
			s.delivered = nil
		} else {
			s.delivered = v
		}
		m.changed(s)
	}
	if len(m.batch.changes) == 0 {
		m.finish()
	}
}

// plan makes the batch. A UID that passes to another full name is another pod: this batch
// removes the one, and the next adds the other.
func (m *merger) plan() {
	m.batch = batch{changes: m.differences(), removed: m.removed}
	for _, r := range m.sources {
		if r.snapshots > 0 && !r.seen {
			m.batch.seen = append(m.batch.seen, r)
			m.batch.mention(r)
		}
	}
	if len(m.batch.changes) == 0 {
		m.finish()
	}
}

// finish notes that the reader has received the batch.
func (m *merger) finish() {
	for _, r := range m.batch.seen {
		r.seen = true
	}
	m.removed -= m.batch.removed
	m.batch = batch{}
}

// differences returns the changes from the delivered to the desired pods, ordered by
// operation, then by source.
func (m *merger) differences() []batchedChange {
	m.comparePending()
	var byOp [Reconcile + 1][]*version
	for _, s := range m.pending {
		op := s.op
		if op == Add && s.desired.restored {
			op = Restore
		}
		byOp[op] = append(byOp[op], s.version())
	}
	var changes []batchedChange
	for op, versions := range byOp {
		slices.SortFunc(versions, func(a, b *version) int { return a.offer.source.compareOrder(b.offer.source) })
		for len(versions) > 0 {
			source := versions[0].offer.source
			n := slices.IndexFunc(versions, func(v *version) bool { return v.offer.source != source })
			if n < 0 {
				n = len(versions)
			}
			changes = append(changes, batchedChange{op: Op(op), source: source, versions: versions[:n]})
			versions = versions[n:]
		}
	}
	return changes
}

// comparePending compares the versions of pending that were not compared yet.
func (m *merger) comparePending() {
	var fresh []*uidState
	for _, s := range m.pending {
		if s.op == 0 {
			fresh = append(fresh, s)
		}
	}
	// The order of the offers is mostly the order of the pods in memory. Without it, the
	// comparison of many pods takes twice as long.
	slices.SortFunc(fresh, func(a, b *uidState) int { return a.version().offer.compareOrder(b.version().offer) })
	for _, s := range fresh {
		from, to := s.delivered, s.desired.current()
		if s.op = m.entry.comparer.compare(from, to); s.op == 0 {
			s.delivered = to // the same pod, so that only one version is kept
			m.settled(s)
		}
	}
}

// mention adds an empty Add of the source if the batch has no change of it.
func (b *batch) mention(source *registration) {
	if slices.ContainsFunc(b.changes, func(c batchedChange) bool { return c.source.name == source.name }) {
		return
	}
	at := slices.IndexFunc(b.changes, func(c batchedChange) bool { return c.op > Add })
	if at < 0 {
		at = len(b.changes)
	}
	b.changes = slices.Insert(b.changes, at, batchedChange{op: Add, source: source})
}
