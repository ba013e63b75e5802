package podconfig

import (
	"bytes"
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// step is a change with the entries it is about, so that it can be applied to
// what the reader is known to know.
type step struct {
	Change
	entries []*entry
}

// ledger holds what the reader was told beside what it is to be told.
type ledger struct {
	// told is what the reader knows, by UID: every step that it took, applied.
	told map[types.UID]*entry
	// open has exactly the UIDs of which told and what is wanted differ in something
	// that counts, and how. So it never grows beyond the two.
	open map[types.UID]Op
}

func newLedger() *ledger {
	return &ledger{told: map[types.UID]*entry{}, open: map[types.UID]Op{}}
}

// note takes down what is wanted of a UID now; nil if nothing is.
func (l *ledger) note(uid types.UID, want *entry) {
	if op := compare(l.told[uid], want); op != 0 {
		l.open[uid] = op
	} else {
		delete(l.open, uid)
	}
}

// apply takes down that the reader took the step.
func (l *ledger) apply(s step, u *union) {
	for _, e := range s.entries {
		uid := e.pod.UID
		if s.Op == Remove {
			delete(l.told, uid)
		} else {
			l.told[uid] = e
		}
		l.note(uid, u.want(uid))
	}
}

// plan returns the batch that leads the reader to what is wanted, ordered by
// operation, then by source, then as the pods came. It is empty when there is
// nothing to tell. A UID that passes to another full name is another pod: this
// batch removes the old one and the next, planned when this one was applied, adds
// the new.
func (l *ledger) plan(u *union) []step {
	if len(l.open) == 0 {
		return nil
	}
	var byOp [Reconcile + 1][]*entry
	for uid, op := range l.open {
		e := u.want(uid)
		switch {
		case op == Remove:
			e = l.told[uid]
		case op == Add && e.slot.restored:
			op = Restore
		}
		byOp[op] = append(byOp[op], e)
	}
	var batch []step
	for op, list := range byOp {
		slices.SortFunc(list, func(a, b *entry) int {
			return cmp.Or(cmp.Compare(a.slot.origin.index, b.slot.origin.index), cmp.Compare(a.slot.seq, b.slot.seq))
		})
		for len(list) > 0 {
			n := slices.IndexFunc(list, func(e *entry) bool { return e.slot.origin != list[0].slot.origin })
			if n < 0 {
				n = len(list)
			}
			batch = append(batch, newStep(Op(op), list[:n]))
			list = list[n:]
		}
	}
	return batch
}

func newStep(op Op, entries []*entry) step {
	pods := make([]*v1.Pod, len(entries))
	for i, e := range entries {
		pods[i] = e.pod
	}
	return step{Change{Op: op, Source: entries[0].slot.origin.name, Pods: pods}, entries}
}

// compare tells what happened to a pod; 0 means nothing that counts.
func compare(old, now *entry) Op {
	switch {
	case old == now:
		return 0
	case old == nil:
		return Add
	case now == nil || old.key != now.key:
		return Remove
	}
	op := difference(old.pod, now.pod)
	if op != Update && op != Delete && old.slot.origin.name != now.slot.origin.name {
		op = changed(now.pod)
	}
	return op
}

// difference tells how two pods of one UID and full name differ; 0 means not at all.
func difference(old, now *v1.Pod) Op {
	switch {
	case !sameDesire(old, now):
		return changed(now)
	case !sameWire(&old.Status, &now.Status):
		return Reconcile
	default:
		return 0
	}
}

// changed is what a change of a pod amounts to.
func changed(now *v1.Pod) Op {
	if now.DeletionTimestamp != nil {
		return Delete
	}
	return Update
}

// sameDesire reports whether two pods of one UID ask for the same: spec, labels,
// deletion and annotations, but for the annotations that belong to the agent.
func sameDesire(a, b *v1.Pod) bool {
	return sameAnnotations(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.DeletionTimestamp, b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		sameWire(&a.Spec, &b.Spec)
}

// sameWire reports whether two values are semantically equal. It looks at their
// protobuf encodings first: those of equal values are nearly always equal, and
// making both takes a tenth of the time of walking through the values.
func sameWire[T interface{ Marshal() ([]byte, error) }](a, b T) bool {
	x, errX := a.Marshal()
	y, errY := b.Marshal()
	if errX == nil && errY == nil && bytes.Equal(x, y) {
		return true
	}
	return equality.Semantic.DeepEqual(a, b)
}

func sameAnnotations(a, b map[string]string) bool {
	count := func(m map[string]string) int {
		n := len(m)
		for _, k := range localAnnotations {
			if _, ok := m[k]; ok {
				n--
			}
		}
		return n
	}
	if count(a) != count(b) {
		return false
	}
	for k, v := range a {
		if slices.Contains(localAnnotations[:], k) {
			continue
		}
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

// localAnnotations are set on the node and say nothing of what is desired.
var localAnnotations = [...]string{
	runtime.AnnotationConfigSource,
	runtime.AnnotationConfigSeen,
	runtime.AnnotationConfigMirror,
}

// withSign makes sure that the batch tells the reader of the source, with an
// empty Add if there is nothing else.
func withSign(batch []step, source string) []step {
	if slices.ContainsFunc(batch, func(s step) bool { return s.Source == source }) {
		return batch
	}
	at := slices.IndexFunc(batch, func(s step) bool { return s.Op > Add })
	if at < 0 {
		at = len(batch)
	}
	return slices.Insert(batch, at, step{Change: Change{Op: Add, Source: source}})
}
