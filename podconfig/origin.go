package podconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"

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

func keyOf(pod *v1.Pod) fullName { return fullName{pod.Namespace, pod.Name} }

// entry is a pod as a source offers it. It is immutable; a slot has the same entry
// for as long as nothing about the pod changes that counts.
type entry struct {
	slot *slot
	key  fullName
	// pod is what the reader gets: the pod of the source, shallow copied, with
	// annotations of its own.
	pod *v1.Pod
}

// slot is the place of a UID in what one source says.
type slot struct {
	origin *origin
	// seq numbers the slots of an origin in the order in which they came.
	seq uint64
	// entry is the offer that stands; nil when it was withdrawn.
	entry *entry
	// given is the pod that the source handed over last: equal to the entry's in
	// all that counts, not always the same one. It is nil when the offer was
	// withdrawn.
	given *v1.Pod
	// generation of the snapshot that last had the pod.
	generation uint64
	// restored says that the pod was restored and the source has not named it yet.
	restored bool

	// These belong to the union: whether the slot holds its UID and full name,
	// whether it is in the list of those that wait for them, and the UID of the pod
	// to which it was last reported to have lost.
	held, queued bool
	lostTo       types.UID
}

// origin is what one source says. Whatever it offers and withdraws goes on to the
// union, which is to be settled then.
type origin struct {
	index uint64 // origins count in the order of their registration
	name  string
	// seen says that the source has said all that it wants at least once, left that
	// it is one no more; covered that the batch under way tells the reader all that
	// came of it, announced that the reader has taken that.
	seen, left, covered, announced bool

	slots map[types.UID]*slot
	seq   uint64
	// at has the slots of the last snapshot by their position in it, nil for what was
	// rejected. Most pods of the next one are the same at the same place, so that an
	// unchanged snapshot costs no memory and little time.
	at         []*slot
	generation uint64
	complaints complaints
}

func newOrigin(index uint64, name string) *origin {
	return &origin{index: index, name: name, slots: map[types.UID]*slot{}}
}

// set replaces what the source says by a new snapshot. stamp is the time, as
// [runtime.AnnotationConfigSeen] has it. The result has the pods that are rejected
// now, not being what they should, and were not by the last snapshot.
func (o *origin) set(u *union, pods []*v1.Pod, stamp string) []Rejection {
	o.seen = true
	o.generation++
	taken := 0
	for i, pod := range pods {
		s := o.sameAt(i, pod)
		if s != nil {
			s.generation = o.generation
		} else {
			s = o.accept(u, pod, stamp)
		}
		if s != nil {
			taken++
		}
		if i < len(o.at) {
			o.at[i] = s
		} else {
			o.at = append(o.at, s)
		}
	}
	clear(o.at[len(pods):])
	o.at = o.at[:len(pods)]
	if taken < len(o.slots) {
		for _, s := range o.slots {
			if s.generation != o.generation {
				o.drop(u, s)
			}
		}
	}
	return o.complaints.news()
}

// sameAt returns the slot of the pod if it is the one that was there in the last
// snapshot, at the same place, and this one has not had it yet.
func (o *origin) sameAt(i int, pod *v1.Pod) *slot {
	if i >= len(o.at) || pod == nil {
		return nil
	}
	if s := o.at[i]; s != nil && s.given == pod && s.generation != o.generation {
		return s
	}
	return nil
}

// accept takes in a pod of a snapshot and returns its slot; nil if it is rejected.
func (o *origin) accept(u *union, pod *v1.Pod, stamp string) *slot {
	switch {
	case pod == nil:
		return nil
	case !identified(pod):
		o.complaints.add(o.unnamed(pod), "")
		return nil
	}
	if s := o.slots[pod.UID]; s != nil && s.generation == o.generation {
		o.complaints.add(Rejection{Source: o.name, Pod: pod, Err: duplicate(o, pod, s, "UID")}, s.given.UID)
		return nil
	}
	return o.put(u, pod, stamp)
}

// update takes in changes since the last snapshot.
func (o *origin) update(u *union, deltas []delta, stamp string) []Rejection {
	var rejections []Rejection
	for _, d := range deltas {
		switch {
		case d.pod == nil:
			if s := o.slots[d.uid]; s != nil {
				o.drop(u, s)
			}
		case !identified(d.pod):
			rejections = append(rejections, o.unnamed(d.pod))
		default:
			o.put(u, d.pod, stamp)
		}
	}
	return rejections
}

// restore takes in pods that the source named in an earlier life of the agent.
func (o *origin) restore(u *union, pods []*v1.Pod, stamp string) []Rejection {
	o.generation++
	for _, pod := range pods {
		seen := stamp
		if s, ok := pod.Annotations[runtime.AnnotationConfigSeen]; ok {
			seen = s
		}
		if s := o.accept(u, pod, seen); s != nil {
			s.restored = true
		}
	}
	return o.complaints.news()
}

// leave withdraws all that the source ever said; nothing more comes of it.
func (o *origin) leave(u *union) {
	o.left, o.announced, o.covered = true, false, false
	for _, s := range o.slots {
		o.drop(u, s)
	}
	o.at = nil
}

// put has the pod in the slot of its UID.
func (o *origin) put(u *union, pod *v1.Pod, stamp string) *slot {
	s := o.slots[pod.UID]
	if s == nil {
		o.seq++
		s = &slot{origin: o, seq: o.seq}
		o.slots[pod.UID] = s
	}
	s.generation, s.restored = o.generation, false
	if s.given != pod {
		s.given = pod
		if e := newEntry(s, pod, stamp); e != s.entry {
			u.offer(s, e)
		}
	}
	return s
}

// drop gives the slot up.
func (o *origin) drop(u *union, s *slot) {
	delete(o.slots, s.entry.pod.UID)
	u.withdraw(s)
	s.given = nil
}

// newEntry returns the entry of a pod that was handed over anew: the one that
// stands, if it says the same.
func newEntry(s *slot, pod *v1.Pod, stamp string) *entry {
	key := keyOf(pod)
	if last := s.entry; last != nil {
		if last.key == key && difference(last.pod, pod) == 0 {
			return last
		}
		stamp = last.pod.Annotations[runtime.AnnotationConfigSeen]
	}
	copied := *pod
	copied.Annotations = make(map[string]string, len(pod.Annotations)+2)
	maps.Copy(copied.Annotations, pod.Annotations)
	copied.Annotations[runtime.AnnotationConfigSource] = s.origin.name
	copied.Annotations[runtime.AnnotationConfigSeen] = stamp
	return &entry{slot: s, key: key, pod: &copied}
}

func identified(pod *v1.Pod) bool { return pod.UID != "" && pod.Name != "" && pod.Namespace != "" }

func (o *origin) unnamed(pod *v1.Pod) Rejection {
	return Rejection{Source: o.name, Pod: pod, Err: fmt.Errorf("pod %s from source %q: %w", runtime.RefOf(pod), o.name, ErrUnnamedPod)}
}

// duplicate is the error of a pod that wants a UID or a full name which another one
// has.
func duplicate(o *origin, pod *v1.Pod, holder *slot, what string) error {
	if holder.origin == o {
		return fmt.Errorf("pod %s from source %q: pod %s of the same source has the same %s: %w; give one of them another %[4]s",
			runtime.RefOf(pod), o.name, runtime.RefOf(holder.given), what, ErrDuplicatePod)
	}
	return fmt.Errorf("pod %s from source %q: pod %s from source %q has the same %s: %w and keeps it until it goes away",
		runtime.RefOf(pod), o.name, runtime.RefOf(holder.given), holder.origin.name, what, ErrDuplicatePod)
}

// complaints turns the pods that are rejected in each snapshot into those that are
// rejected newly, so that each is reported once for as long as it lasts.
type complaints struct {
	now, before map[complaint]struct{}
	fresh       []Rejection
}

type complaint struct {
	ref   runtime.PodRef
	other types.UID
}

// add notes a rejected pod, and the one that it lost to.
func (c *complaints) add(r Rejection, other types.UID) {
	key := complaint{runtime.RefOf(r.Pod), other}
	if _, known := c.now[key]; known {
		return
	}
	if c.now == nil {
		c.now = map[complaint]struct{}{}
	}
	c.now[key] = struct{}{}
	if _, known := c.before[key]; !known {
		c.fresh = append(c.fresh, r)
	}
}

// news ends the snapshot.
func (c *complaints) news() []Rejection {
	fresh := c.fresh
	c.now, c.before = c.before, c.now
	clear(c.now)
	c.fresh = nil
	return fresh
}
