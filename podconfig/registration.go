package podconfig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// registration is a registered source and the pods that it offers.
type registration struct {
	name   string
	source Source
	// order is the place of the source among all that were ever registered.
	order uint64
	// seen is [SourceState].Seen.
	seen bool
	// removed is true when the source is not registered any more.
	removed bool

	// offers has the offers of the source; offered counts all offers that it has ever
	// made.
	offers  map[types.UID]*offer
	offered uint64
	// snapshots counts the snapshots that the source has delivered. last has the offers
	// of the last one by position, nil for a rejected pod. Most pods of a snapshot are
	// at the position that they had in the one before, so that an unchanged snapshot
	// costs one comparison of pointers for each pod, and no memory.
	snapshots uint64
	last      []*offer
	// rejected has the errors of the last snapshot. They are not reported again if the
	// next snapshot has them too.
	rejected map[string]bool

	// cancel ends the goroutine that runs the source, which then closes done. Both are
	// nil until it is started.
	cancel context.CancelFunc
	done   chan struct{}
}

// offer is a pod that a source offers. It stays the same offer while the pod changes.
type offer struct {
	version
	// raw is the pod as the source passed it, of which version.pod is a copy. It is nil
	// after the offer was withdrawn.
	raw *v1.Pod
	// snapshot is the number of the last snapshot that had the pod.
	snapshot uint64
	// restored is true until the source itself has delivered the pod.
	restored bool
	claim    claim
}

// version is an offered pod at one time. The zero version means no pod.
type version struct {
	// pod is what the reader receives: a shallow copy of the source's pod, with
	// annotations of its own. It is never changed.
	pod    *v1.Pod
	source *registration
	// number is the place of the offer among all that the source ever made.
	number uint64
}

// compareOrder orders versions by source, then as they were first offered.
func (v version) compareOrder(w version) int {
	return cmp.Or(cmp.Compare(v.source.order, w.source.order), cmp.Compare(v.number, w.number))
}

// rejection is a pod that a source has delivered and that is not desired.
type rejection struct {
	source *registration
	pod    *v1.Pod
	err    error
}

// fullName identifies a pod on a node, where at most one pod of a full name may run.
type fullName struct{ namespace, name string }

func fullNameOf(pod *v1.Pod) fullName { return fullName{pod.Namespace, pod.Name} }

// set replaces all offers by those of a snapshot. It returns the pods that are rejected
// now and were not rejected in the last snapshot.
func (r *registration) set(c *claims, pods []*v1.Pod) []rejection {
	r.snapshots++
	reported := r.rejected
	r.rejected = nil
	var rejections []rejection
	offers, accepted := r.last[:0], 0 // overwrites only the positions that were read
	for i, pod := range pods {
		o := r.unchanged(i, pod)
		if o == nil && pod != nil {
			if err := r.check(pod); err == nil {
				o = r.put(c, pod, "")
			} else if r.isNew(err, reported) {
				rejections = append(rejections, rejection{r, pod, err})
			}
		}
		if o != nil {
			o.snapshot = r.snapshots
			accepted++
		}
		offers = append(offers, o)
	}
	if len(offers) < len(r.last) {
		clear(r.last[len(offers):])
	}
	r.last = offers
	if accepted < len(r.offers) {
		for _, o := range r.offers {
			if o.snapshot != r.snapshots {
				r.withdraw(c, o)
			}
		}
	}
	return rejections
}

// isNew records an error of the current snapshot. It reports whether neither this nor the
// last snapshot has had it before.
func (r *registration) isNew(err error, reported map[string]bool) bool {
	message := err.Error()
	if r.rejected[message] {
		return false
	}
	if r.rejected == nil {
		r.rejected = map[string]bool{}
	}
	r.rejected[message] = true
	return !reported[message]
}

// unchanged returns the offer of a pod that is at the same position as in the last
// snapshot, by the same pointer; else nil.
func (r *registration) unchanged(position int, pod *v1.Pod) *offer {
	if position >= len(r.last) || pod == nil {
		return nil
	}
	if o := r.last[position]; o != nil && o.raw == pod && o.snapshot != r.snapshots {
		return o
	}
	return nil // also if the current snapshot has had the pod at an earlier position
}

// check returns an error if a pod of the current snapshot cannot be offered.
func (r *registration) check(pod *v1.Pod) error {
	if o := r.offers[pod.UID]; o != nil && o.snapshot == r.snapshots {
		return r.duplicate(pod, o.version, "UID")
	}
	return r.checkIdentity(pod)
}

func (r *registration) checkIdentity(pod *v1.Pod) error {
	if pod.UID == "" || pod.Name == "" || pod.Namespace == "" {
		return fmt.Errorf("pod %s of source %q has no name, no namespace or no UID", runtime.RefOf(pod), r.name)
	}
	return nil
}

// duplicate is the error of a pod that wants the UID or the full name of another one.
func (r *registration) duplicate(pod *v1.Pod, holder version, what string) error {
	if holder.source == r {
		return fmt.Errorf("pod %s of source %q waits: pod %s of the same source has the same %s; remove one of them, or give it another %[4]s",
			runtime.RefOf(pod), r.name, runtime.RefOf(holder.pod), what)
	}
	return fmt.Errorf("pod %s of source %q waits: pod %s of source %q has the same %s, and keeps it until it is removed",
		runtime.RefOf(pod), r.name, runtime.RefOf(holder.pod), holder.source.name, what)
}

// apply changes the offers by a delta. It returns the pods that are rejected.
func (r *registration) apply(c *claims, d Delta) []rejection {
	var rejections []rejection
	updates := map[types.UID]*v1.Pod{} // without a size: a small one needs no memory on the heap
	for _, pod := range d.Update {
		if pod == nil {
			continue
		}
		if err := r.checkIdentity(pod); err != nil {
			rejections = append(rejections, rejection{r, pod, err})
			continue
		}
		updates[pod.UID] = pod
	}
	for _, uid := range d.Remove {
		if o := r.offers[uid]; o != nil && updates[uid] == nil {
			r.withdraw(c, o)
		}
	}
	for _, pod := range d.Update {
		if pod != nil && updates[pod.UID] == pod {
			r.put(c, pod, "")
		}
	}
	return rejections
}

// restore offers pods that the source offered in an earlier run of the agent. It
// returns the pods that are rejected.
func (r *registration) restore(c *claims, pods []*v1.Pod) []rejection {
	var rejections []rejection
	for _, pod := range pods {
		if err := r.check(pod); err != nil {
			rejections = append(rejections, rejection{r, pod, err})
			continue
		}
		r.put(c, pod, pod.Annotations[runtime.AnnotationConfigSeen]).restored = true
	}
	return rejections
}

// put offers the pod, in place of the pod of the same UID. seen is when the source first
// delivered a new UID, as in [runtime.AnnotationConfigSeen]; empty means now.
func (r *registration) put(c *claims, pod *v1.Pod, seen string) *offer {
	o := r.offers[pod.UID]
	if o == nil {
		r.offered++
		o = &offer{version: version{source: r, number: r.offered}}
		r.offers[pod.UID] = o
	}
	o.snapshot, o.restored = r.snapshots, false
	if o.raw == pod {
		return o
	}
	o.raw = pod
	switch {
	case o.pod != nil:
		seen = o.pod.Annotations[runtime.AnnotationConfigSeen]
	case seen == "":
		seen = time.Now().Format(time.RFC3339Nano)
	}
	c.offer(o, annotated(pod, r.name, seen))
	return o
}

// annotated returns a shallow copy of the pod with the annotations of the stream.
func annotated(pod *v1.Pod, source, seen string) *v1.Pod {
	copied := *pod
	copied.Annotations = make(map[string]string, len(pod.Annotations)+2)
	maps.Copy(copied.Annotations, pod.Annotations)
	copied.Annotations[runtime.AnnotationConfigSource] = source
	copied.Annotations[runtime.AnnotationConfigSeen] = seen
	return &copied
}

func (r *registration) withdraw(c *claims, o *offer) {
	delete(r.offers, o.pod.UID)
	c.withdraw(o)
	o.raw = nil
}

// withdrawAll withdraws all offers.
func (r *registration) withdrawAll(c *claims) {
	for _, o := range r.offers {
		r.withdraw(c, o)
	}
	r.last = nil
}
