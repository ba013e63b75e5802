package podconfig

import (
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

// apply makes told what it is once the reader has taken the step.
func (s step) apply(told map[types.UID]*entry) {
	for _, e := range s.entries {
		if s.Op == Remove {
			delete(told, e.pod.UID)
		} else {
			told[e.pod.UID] = e
		}
	}
}

// diff returns the batch that leads a reader who was told old to want, ordered by
// operation, then by source. It is empty when there is nothing to tell. A UID
// that passes to another full name is another pod: this batch removes the old one
// and the next, planned when this one was applied, adds the new.
func diff(old map[types.UID]*entry, want []*entry) []step {
	var byOp [Reconcile + 1][]*entry
	kept := 0
	for _, e := range want {
		last := old[e.pod.UID]
		switch op := compare(last, e); op {
		case Remove: // found below
		case 0:
			kept++
		case Add:
			byOp[Add] = append(byOp[Add], e)
		default:
			byOp[op] = append(byOp[op], e)
			kept++
		}
	}
	if kept < len(old) {
		byOp[Remove] = missing(old, want)
	}
	slices.SortFunc(byOp[Remove], func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.origin.index, b.origin.index), a.key.compare(b.key), cmp.Compare(a.pod.UID, b.pod.UID))
	})

	var batch []step
	for op := Remove; op <= Reconcile; op++ {
		for list := byOp[op]; len(list) > 0; {
			n := slices.IndexFunc(list, func(e *entry) bool { return e.origin != list[0].origin })
			if n < 0 {
				n = len(list)
			}
			batch = append(batch, newStep(op, list[:n]))
			list = list[n:]
		}
	}
	return batch
}

// missing returns what is in old and, by UID and full name, not wanted.
func missing(old map[types.UID]*entry, want []*entry) []*entry {
	keys := make(map[types.UID]fullName, len(want))
	for _, e := range want {
		keys[e.pod.UID] = e.key
	}
	var gone []*entry
	for uid, e := range old {
		if key, wanted := keys[uid]; !wanted || key != e.key {
			gone = append(gone, e)
		}
	}
	return gone
}

func newStep(op Op, entries []*entry) step {
	pods := make([]*v1.Pod, len(entries))
	for i, e := range entries {
		pods[i] = e.pod
	}
	return step{Change{Op: op, Source: entries[0].origin.name, Pods: pods}, entries}
}

// compare tells what happened to a pod; 0 means nothing that counts.
func compare(old, now *entry) Op {
	switch {
	case old == nil:
		return Add
	case old == now:
		return 0
	case old.key != now.key:
		return Remove
	case old.origin != now.origin || !sameDesire(old.pod, now.pod):
		if now.pod.DeletionTimestamp != nil {
			return Delete
		}
		return Update
	case !equality.Semantic.DeepEqual(&old.pod.Status, &now.pod.Status):
		return Reconcile
	default:
		return 0
	}
}

// sameDesire reports whether two pods of one UID ask for the same: spec, labels,
// deletion and annotations, but for the annotations that belong to the agent.
func sameDesire(a, b *v1.Pod) bool {
	return equality.Semantic.DeepEqual(&a.Spec, &b.Spec) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.DeletionTimestamp, b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		sameAnnotations(a.Annotations, b.Annotations)
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
