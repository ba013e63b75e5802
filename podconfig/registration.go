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
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// registration is a registered source and the pods that it offers.
type registration struct {
	name   string
	source Source
	// entry checks the pods of all sources.
	entry *entry
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
	// rejected are the rejections of the last snapshot and of the deltas since then, by their
	// messages. They are not reported again if the next snapshot has them too.
	rejected map[string]Rejection
	// refused are the pods among them that were not accepted, by UID.
	refused map[types.UID]refusal
	// restored are the restored pods, until the source delivers its first snapshot. They are offered when restoreAfter
	// is closed, or at once if it is nil.
	restored     []*v1.Pod
	restoreAfter <-chan struct{}

	// cancel ends the goroutine that runs the source, which then closes done. Both are
	// nil until it is started.
	cancel context.CancelFunc
	done   chan struct{}
}

// compareOrder orders sources as they were registered.
func (r *registration) compareOrder(s *registration) int { return cmp.Compare(r.order, s.order) }

// offer is a pod that a source offers. It stays the same offer while the pod changes.
type offer struct {
	// given is the pod as the source passed it last, unless that was not accepted. pod is the
	// same pod with its defaults. Both are nil after the offer was withdrawn.
	given, pod *v1.Pod
	// spec is the same for two versions of the offer whose specs are equal.
	spec *acceptedSpec
	// name is the full name of pod.
	name fullName
	// version is the version that current has returned last.
	version *version
	// snapshot is the number of the last snapshot that had the pod.
	snapshot uint64
	// restored is true until the source itself has delivered the pod, also if that was not accepted.
	restored bool
	// withdrawn is the version with which the offer was withdrawn, if its deletion was requested
	// and no other pod of the UID has been desired since. It may have a shorter grace period
	// than a version that the reader has received, or receives in the batch that has begun.
	withdrawn *version
	state     offerState

	source *registration
	// number is the place of the offer among all that the source ever made.
	number uint64
	// made is when the offer was made. seen is the same, or an earlier time for a restored
	// pod, as the value of [podspec.AnnotationConfigSeen]; empty until it is needed.
	made time.Time
	seen string
}

// compareOrder orders offers by source, then as they were first made.
func (o *offer) compareOrder(p *offer) int {
	if o.source != p.source {
		return o.source.compareOrder(p.source)
	}
	return cmp.Compare(o.number, p.number)
}

// firstSeen returns the value of [podspec.AnnotationConfigSeen].
func (o *offer) firstSeen() string {
	if o.seen == "" {
		o.seen = o.made.Format(time.RFC3339Nano)
	}
	return o.seen
}

// current returns the version of the pod to compare with the delivered one; nil if the
// offer is nil.
func (o *offer) current() *version {
	if o == nil {
		return nil
	}
	if !o.compared() {
		o.version = &version{offer: o, pod: o.pod, spec: o.spec}
	}
	return o.version
}

// compared reports whether current has returned the version of the pod already.
func (o *offer) compared() bool { return o.version != nil && o.version.pod == o.pod }

// version is an offered pod at one time.
type version struct {
	offer *offer
	// pod and spec are those of the offer. They are never changed.
	pod  *v1.Pod
	spec *acceptedSpec
	// annotated is the pod that forReader returns. It is nil until the first call.
	annotated *v1.Pod
}

// forReader returns the pod that the reader receives: a shallow copy of the source's pod
// with the annotations of the stream.
func (v *version) forReader() *v1.Pod {
	if v.annotated == nil {
		pod := *v.pod
		pod.Annotations = make(map[string]string, len(v.pod.Annotations)+2)
		maps.Copy(pod.Annotations, v.pod.Annotations)
		pod.Annotations[podspec.AnnotationConfigSource] = v.offer.source.name
		pod.Annotations[podspec.AnnotationConfigSeen] = v.offer.firstSeen()
		v.annotated = &pod
	}
	return v.annotated
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
func (r *registration) set(c *offers, pods []*v1.Pod) []rejection {
	r.snapshots++
	r.restored = nil
	reported, refused := r.rejected, r.refused
	r.rejected, r.refused = nil, nil
	var rejections []rejection
	if len(r.last) != len(pods) {
		last := make([]*offer, len(pods))
		copy(last, r.last)
		r.last = last
	}
	offered := 0
	for i, pod := range pods {
		if o := r.last[i]; r.unchanged(o, pod, refused) {
			o.snapshot = r.snapshots
			offered++
			continue
		}
		r.last[i] = nil
		if pod == nil {
			continue
		}
		o, err := r.enter(c, pod, refused)
		if o != nil {
			offered++
		}
		if err != nil {
			if r.isNew(pod, err, reported) {
				rejections = append(rejections, rejection{r, pod, err})
			}
			continue
		}
		r.last[i] = o
	}
	if offered < len(r.offers) {
		for _, o := range r.offers {
			if o.snapshot != r.snapshots {
				r.withdraw(c, o)
			}
		}
	}
	return rejections
}

// enter offers a pod of the current snapshot. If it is not accepted, the offer of its UID stays, and is returned beside
// the error.
func (r *registration) enter(c *offers, pod *v1.Pod, refused map[types.UID]refusal) (*offer, error) {
	o := r.offers[pod.UID]
	if o != nil && o.snapshot == r.snapshots {
		return nil, r.duplicate(pod, o, "UID")
	}
	accepted, err := r.accept(o, pod, refused)
	if err == nil {
		return r.put(c, o, pod, accepted), nil
	}
	if o != nil {
		o.snapshot, o.restored = r.snapshots, false
		r.end(c, o, pod)
	}
	return o, err
}

// isNew records an error of the current snapshot. It reports whether neither this nor the
// last snapshot has had it before.
func (r *registration) isNew(pod *v1.Pod, err error, reported map[string]Rejection) bool {
	message := err.Error()
	if _, there := r.rejected[message]; there {
		return false
	}
	before, known := reported[message]
	if !known {
		before = Rejection{Pod: runtime.RefOf(pod), Err: err, Since: time.Now()}
	}
	if r.rejected == nil {
		r.rejected = map[string]Rejection{}
	}
	r.rejected[message] = before
	return !known
}

// unchanged reports whether o, the offer at the position of pod in the last snapshot, has the same pod by pointer, no
// update of it was refused since, and the current snapshot has not had it at an earlier position.
func (r *registration) unchanged(o *offer, pod *v1.Pod, refused map[types.UID]refusal) bool {
	if o == nil || pod == nil || o.given != pod || o.snapshot == r.snapshots {
		return false
	}
	_, since := refused[pod.UID]
	return !since
}

// duplicate returns the error of a pod whose UID or full name another pod has.
func (r *registration) duplicate(pod *v1.Pod, holder *offer, what string) error {
	other := runtime.RefOf(holder.pod)
	if holder.source == r {
		return fmt.Errorf("pod %s of source %q waits: pod %s of the same source has the same %s; remove one of "+
			"them, or give it another %[4]s",
			runtime.RefOf(pod), r.name, other, what)
	}
	return fmt.Errorf(
		"pod %s of source %q waits: pod %s of source %q has the same %s, and keeps it until it is removed",
		runtime.RefOf(pod), r.name, other, holder.source.name, what)
}

// apply changes the offers by a delta. It returns the pods that are rejected.
func (r *registration) apply(c *offers, d Delta) []rejection {
	var rejections []rejection
	// without a size: a small one needs no memory on the heap
	latest, updates := map[types.UID]int{}, map[types.UID]accepted{} // of latest the places in d.Update
	for i, pod := range d.Update {
		if pod != nil {
			latest[pod.UID] = i
		}
	}
	for i, pod := range d.Update {
		if pod == nil || latest[pod.UID] != i {
			continue
		}
		before, known := r.refused[pod.UID]
		o := r.offers[pod.UID]
		a, err := r.accept(o, pod, r.refused)
		if err == nil {
			updates[pod.UID] = a
			if known {
				r.forget(pod.UID, before)
			}
			continue
		}
		if known && before.err.Error() != err.Error() {
			delete(r.rejected, before.err.Error())
		}
		if r.isNew(pod, err, r.rejected) {
			rejections = append(rejections, rejection{r, pod, err})
		}
		if o != nil {
			r.end(c, o, pod)
		}
	}
	for _, uid := range d.Remove {
		if _, updated := latest[uid]; updated {
			continue
		}
		if o := r.offers[uid]; o != nil {
			r.withdraw(c, o)
		}
		if before, known := r.refused[uid]; known {
			r.forget(uid, before)
		}
	}
	for i, pod := range d.Update {
		if pod == nil || latest[pod.UID] != i {
			continue
		}
		a, ok := updates[pod.UID]
		if !ok {
			continue
		}
		for _, o := range c.named(r, fullNameOf(pod)) {
			if uid := o.pod.UID; uid != pod.UID && !renamed(updates[uid].pod, pod) {
				r.withdraw(c, o)
			}
		}
		r.put(c, r.offers[pod.UID], pod, a)
	}
	return rejections
}

// forget removes the refusal of a pod that was accepted or removed since.
func (r *registration) forget(uid types.UID, f refusal) {
	delete(r.refused, uid)
	delete(r.rejected, f.err.Error())
}

// restore offers the restored pods. It returns the pods that are rejected.
func (r *registration) restore(c *offers) []rejection {
	var rejections []rejection
	for _, pod := range r.restored {
		if o, err := r.enter(c, pod, nil); err != nil {
			r.isNew(pod, err, nil)
			rejections = append(rejections, rejection{r, pod, err})
		} else {
			o.seen, o.restored = pod.Annotations[podspec.AnnotationConfigSeen], true
		}
	}
	return rejections
}

// put offers the pod, in place of o, the offer of its UID, which may be nil.
func (r *registration) put(c *offers, o *offer, given *v1.Pod, a accepted) *offer {
	if o == nil {
		r.offered++
		o = &offer{source: r, number: r.offered, made: time.Now()}
		r.offers[given.UID] = o
	}
	o.snapshot, o.restored = r.snapshots, false
	o.given, o.spec = given, a.spec
	if o.pod != a.pod {
		c.offer(o, a.pod)
	}
	return o
}

func (r *registration) withdraw(c *offers, o *offer) {
	delete(r.offers, o.pod.UID)
	c.withdraw(o)
}

// withdrawAll withdraws all offers.
func (r *registration) withdrawAll(c *offers) {
	for _, o := range r.offers {
		r.withdraw(c, o)
	}
	r.last, r.rejected, r.refused = nil, nil, nil
}
