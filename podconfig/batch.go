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

type batchedChange struct {
	Change
	versions []version // of Change.Pods
}

// next returns the change that the reader is to receive next; false if there is none.
func (m *merger) next() (Change, bool) {
	if !m.batch.begun {
		m.plan()
	}
	if len(m.batch.changes) == 0 {
		return Change{}, false
	}
	return m.batch.changes[0].Change, true
}

// received notes that the reader has received the change that next has returned last.
func (m *merger) received() {
	change := m.batch.changes[0]
	m.batch.changes[0] = batchedChange{} // for the garbage collector
	m.batch.changes = m.batch.changes[1:]
	m.batch.begun = true
	for _, v := range change.versions {
		if change.Op == Remove {
			delete(m.delivered, v.pod.UID)
		} else {
			m.delivered[v.pod.UID] = v
		}
		m.compare(v.pod.UID)
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
			m.batch.mention(r.name)
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
// operation, then by source, with the pods as they were first offered.
func (m *merger) differences() []batchedChange {
	if len(m.pending) == 0 {
		return nil
	}
	var byOp [Reconcile + 1][]version
	for uid, op := range m.pending {
		v := m.claims.desired(uid)
		switch {
		case op == Remove:
			v = m.delivered[uid]
		case op == Add && m.claims.byUID[uid].restored:
			op = Restore
		}
		byOp[op] = append(byOp[op], v)
	}
	var changes []batchedChange
	for op, versions := range byOp {
		slices.SortFunc(versions, version.compareOrder)
		for len(versions) > 0 {
			source := versions[0].source
			n := slices.IndexFunc(versions, func(v version) bool { return v.source != source })
			if n < 0 {
				n = len(versions)
			}
			changes = append(changes, newChange(Op(op), versions[:n]))
			versions = versions[n:]
		}
	}
	return changes
}

// newChange returns the change with the versions, all of one source.
func newChange(op Op, versions []version) batchedChange {
	pods := make([]*v1.Pod, len(versions))
	for i, v := range versions {
		pods[i] = v.pod
	}
	return batchedChange{Change{Op: op, Source: versions[0].source.name, Pods: pods}, versions}
}

// mention adds an empty Add of the source if the batch has no change of it.
func (b *batch) mention(source string) {
	if slices.ContainsFunc(b.changes, func(c batchedChange) bool { return c.Source == source }) {
		return
	}
	at := slices.IndexFunc(b.changes, func(c batchedChange) bool { return c.Op > Add })
	if at < 0 {
		at = len(b.changes)
	}
	b.changes = slices.Insert(b.changes, at, batchedChange{Change: Change{Op: Add, Source: source}})
}
