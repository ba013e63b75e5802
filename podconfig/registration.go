package podconfig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podspec"
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
	// pod is the pod as the source passed it last. It is nil after the offer was
	// withdrawn.
	pod *v1.Pod
	// name is the full name of pod.
	name fullName
	// version is the version that current has returned last.
	version *version
	// snapshot is the number of the last snapshot that had the pod.
	snapshot uint64
	// restored is true until the source itself has delivered the pod.
	restored bool
	// withdrawn is the version with which the offer was withdrawn, if its deletion was requested
	// and no other pod of the UID has been desired since. It may have a shorter grace period
	// than a version that the reader has received, or receives in the batch that has begun.
	withdrawn *version
	claim     claim

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
		o.version = &version{offer: o, pod: o.pod}
	}
	return o.version
}

// compared reports whether current has returned the version of the pod already.
func (o *offer) compared() bool { return o.version != nil && o.version.pod == o.pod }

// version is an offered pod at one time.
type version struct {
	offer *offer
	// pod is the pod as the source passed it. It is never changed.
	pod *v1.Pod
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
func (r *registration) set(c *claims, pods []*v1.Pod) []rejection {
	r.snapshots++
	r.restored = nil
	reported := r.rejected
	r.rejected = nil
	var rejections []rejection
	if len(r.last) != len(pods) {
		last := make([]*offer, len(pods))
		copy(last, r.last)
		r.last = last
	}
	accepted := 0
	for i, pod := range pods {
		if o := r.last[i]; r.unchanged(o, pod) {
			o.snapshot = r.snapshots
			accepted++
			continue
		}
		r.last[i] = nil
		if pod == nil {
			continue
		}
		if err := r.check(pod); err != nil {
			if r.isNew(err, reported) {
				rejections = append(rejections, rejection{r, pod, err})
			}
			continue
		}
		r.last[i] = r.put(c, pod, "")
		accepted++
	}
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

// unchanged reports whether o, the offer at the position of pod in the last snapshot, has
// the same pod by pointer, and the current snapshot has not had it at an earlier position.
func (r *registration) unchanged(o *offer, pod *v1.Pod) bool {
	return o != nil && pod != nil && o.pod == pod && o.snapshot != r.snapshots
}

// check returns an error if a pod of the current snapshot cannot be offered.
func (r *registration) check(pod *v1.Pod) error {
	if o := r.offers[pod.UID]; o != nil && o.snapshot == r.snapshots {
		return r.duplicate(pod, o, "UID")
	}
	return r.checkIdentity(pod)
}

func (r *registration) checkIdentity(pod *v1.Pod) error {
	if pod.UID == "" || pod.Name == "" || pod.Namespace == "" {
		return fmt.Errorf("pod %s of source %q has no name, no namespace or no UID", runtime.RefOf(pod), r.name)
	}
	return nil
}

// duplicate returns the error of a pod whose UID or full name another pod has.
func (r *registration) duplicate(pod *v1.Pod, holder *offer, what string) error {
	other := runtime.RefOf(holder.pod)
	if holder.source == r {
		return fmt.Errorf("pod %s of source %q waits: pod %s of the same source has the same %s; remove one of them, or give it another %[4]s",
			runtime.RefOf(pod), r.name, other, what)
	}
	return fmt.Errorf("pod %s of source %q waits: pod %s of source %q has the same %s, and keeps it until it is removed",
		runtime.RefOf(pod), r.name, other, holder.source.name, what)
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
		if pod == nil || updates[pod.UID] != pod {
			continue
		}
		for _, o := range c.named(r, fullNameOf(pod)) {
			if uid := o.pod.UID; uid != pod.UID && !renamed(updates[uid], pod) {
				r.withdraw(c, o)
			}
		}
		r.put(c, pod, "")
	}
	return rejections
}

// restore offers the restored pods. It returns the pods that are rejected.
func (r *registration) restore(c *claims) []rejection {
	var rejections []rejection
	for _, pod := range r.restored {
		if err := r.check(pod); err != nil {
			rejections = append(rejections, rejection{r, pod, err})
			continue
		}
		r.put(c, pod, pod.Annotations[podspec.AnnotationConfigSeen]).restored = true
	}
	return rejections
}

// put offers the pod, in place of the pod of the same UID. seen is when the source first
// delivered a new UID, as in [podspec.AnnotationConfigSeen]; empty means now.
func (r *registration) put(c *claims, pod *v1.Pod, seen string) *offer {
	o := r.offers[pod.UID]
	if o == nil {
		r.offered++
		o = &offer{source: r, number: r.offered, made: time.Now(), seen: seen}
		r.offers[pod.UID] = o
	}
	o.snapshot, o.restored = r.snapshots, false
	if o.pod != pod {
		c.offer(o, pod)
	}
	return o
}

func (r *registration) withdraw(c *claims, o *offer) {
	delete(r.offers, o.pod.UID)
	c.withdraw(o)
}

// withdrawAll withdraws all offers.
func (r *registration) withdrawAll(c *claims) {
	for _, o := range r.offers {
		r.withdraw(c, o)
	}
	r.last = nil
}
