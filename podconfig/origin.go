package podconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Rejection says why a pod that a source wants is not in the stream.
type Rejection struct {
	// Source that offers the pod.
	Source string
	Pod    *v1.Pod
	// Err wraps [ErrDuplicatePod] or [ErrUnnamedPod] and names the pods and sources
	// concerned.
	Err error
}

// Errors of a [Rejection], to be tested for with [errors.Is].
var (
	// ErrDuplicatePod says that another pod of the same UID or full name is there.
	// The rejected one takes over when that one goes away.
	ErrDuplicatePod = errors.New("another pod has its place")
	// ErrUnnamedPod says that a pod has no name, namespace or UID.
	ErrUnnamedPod = errors.New("pod without a name, namespace or UID")
)

// fullName identifies a pod on a node; at most one of a full name may run.
type fullName struct{ namespace, name string }

func (n fullName) compare(o fullName) int {
	return cmp.Or(cmp.Compare(n.namespace, o.namespace), cmp.Compare(n.name, o.name))
}

// entry is a pod as a source offers it. It is immutable, and two entries of one
// source are the same entry as long as nothing about the pod changes, so that
// comparing pointers is the common way to compare.
type entry struct {
	origin *origin
	key    fullName
	// pod is what the reader gets: the pod of the source, shallow copied, with
	// annotations of its own.
	pod *v1.Pod
}

// origin is what one source says.
type origin struct {
	index int
	name  string
	// seen says that the source has delivered at least once.
	seen bool
	// entries are the pods of the last snapshot, without the rejected ones, in the
	// order of the snapshot.
	entries []*entry

	// byUID and byName have the entries of the last snapshot; what is stamped with
	// an older generation is on its way out. They are kept from snapshot to
	// snapshot so that an unchanged one costs no memory and little time.
	generation uint64
	byUID      map[types.UID]*slot
	byName     map[fullName]*nameSlot
	complaints complaints
}

// slot is the place of a UID in the snapshots of an origin.
type slot struct {
	generation uint64
	entry      *entry
	// given is the pod that the source handed over last: equal to the entry's in
	// all that counts, not always the same one.
	given *v1.Pod
	// name is the place of the entry's full name.
	name *nameSlot
}

// nameSlot is the place of a full name.
type nameSlot struct {
	generation uint64
	holder     *slot
}

func newOrigin(index int, name string) *origin {
	return &origin{index: index, name: name, byUID: map[types.UID]*slot{}, byName: map[fullName]*nameSlot{}}
}

// take replaces what the source says by a new snapshot. The result has the pods
// that are rejected now and were not by the last snapshot.
func (o *origin) take(pods []*v1.Pod, now time.Time) []Rejection {
	o.seen = true
	o.generation++
	o.entries = o.entries[:0]
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		key := fullName{pod.Namespace, pod.Name}
		if pod.UID == "" || key.name == "" || key.namespace == "" {
			o.complaints.add(o.name, pod, "", func() error {
				return fmt.Errorf("pod %s from source %q: %w", runtime.RefOf(pod), o.name, ErrUnnamedPod)
			})
			continue
		}
		s := o.byUID[pod.UID]
		if s != nil && s.generation == o.generation {
			o.complaints.add(o.name, pod, s.given.UID, func() error { return o.duplicate(pod, s.given, "UID") })
			continue
		}
		var name *nameSlot
		if s != nil && s.entry.key == key {
			name = s.name
		} else {
			name = o.byName[key]
		}
		if name != nil && name.generation == o.generation {
			other := name.holder.given
			o.complaints.add(o.name, pod, other.UID, func() error { return o.duplicate(pod, other, "name") })
			continue
		}
		if s == nil {
			s = &slot{}
			o.byUID[pod.UID] = s
		}
		if name == nil {
			name = &nameSlot{}
			o.byName[key] = name
		}
		if s.given != pod {
			s.entry, s.given = o.entryOf(pod, s.entry, now), pod
		}
		s.name, s.generation = name, o.generation
		name.holder, name.generation = s, o.generation
		o.entries = append(o.entries, s.entry)
	}
	if len(o.byUID) > len(o.entries) {
		maps.DeleteFunc(o.byUID, func(_ types.UID, s *slot) bool { return s.generation != o.generation })
	}
	if len(o.byName) > len(o.entries) {
		maps.DeleteFunc(o.byName, func(_ fullName, n *nameSlot) bool { return n.generation != o.generation })
	}
	return o.complaints.news()
}

func (o *origin) duplicate(pod, other *v1.Pod, what string) error {
	return fmt.Errorf("pod %s from source %q: pod %s of the same source has the same %s: %w; give one of them another %[4]s",
		runtime.RefOf(pod), o.name, runtime.RefOf(other), what, ErrDuplicatePod)
}

// entryOf returns the entry of a pod that was handed over anew: the last one if
// it says the same.
func (o *origin) entryOf(pod *v1.Pod, last *entry, now time.Time) *entry {
	seen := now.Format(time.RFC3339Nano)
	if last != nil {
		seen = last.pod.Annotations[runtime.AnnotationConfigSeen]
	}
	copied := *pod
	copied.Annotations = make(map[string]string, len(pod.Annotations)+2)
	maps.Copy(copied.Annotations, pod.Annotations)
	copied.Annotations[runtime.AnnotationConfigSource] = o.name
	copied.Annotations[runtime.AnnotationConfigSeen] = seen
	e := &entry{origin: o, key: fullName{pod.Namespace, pod.Name}, pod: &copied}
	if last != nil && compare(last, e) == 0 {
		return last
	}
	return e
}
