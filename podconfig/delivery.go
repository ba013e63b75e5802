package podconfig

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// delivery is the state behind the stream, without goroutines: what each source
// says, what is wanted in all, what the reader was told, and the batch that leads
// from one to the other.
type delivery struct {
	// origins are the sources of which something was heard, and those that left and
	// whose end the reader has not been told.
	origins []*origin
	union   *union
	ledger  *ledger
	// batch is what is left to be told. begun says that part of it was.
	batch []step
	begun bool
}

// inbox is what the sources did since it was last taken: which left, and what the
// others said.
type inbox struct {
	left []*origin
	said []saying
}

type saying struct {
	origin *origin
	news   news
}

func newDelivery() *delivery {
	l := newLedger()
	return &delivery{union: newUnion(l), ledger: l}
}

// cameFrom returns those of the pods that came from the source in an earlier life of
// the agent.
func cameFrom(pods []*v1.Pod, source string) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool {
		return pod == nil || pod.Annotations[runtime.AnnotationConfigSource] != source
	})
}

// restore takes in pods of an earlier life of the agent, each to the one of the
// origins that it came from. strays are the pods of others.
func (d *delivery) restore(pods []*v1.Pod, origins []*origin, now time.Time) (strays []*v1.Pod, rejections []Rejection) {
	names := map[string]bool{}
	for _, o := range origins {
		names[o.name] = true
		if own := cameFrom(pods, o.name); len(own) > 0 {
			d.register(o)
			rejections = append(rejections, o.restore(d.union, own, stamp(now))...)
		}
	}
	strays = slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool {
		return pod == nil || names[pod.Annotations[runtime.AnnotationConfigSource]]
	})
	return strays, append(rejections, d.union.settle()...)
}

// absorb takes in what the sources did. It leaves the batch alone.
func (d *delivery) absorb(in inbox, now time.Time) []Rejection {
	var rejections []Rejection
	for _, o := range in.left {
		d.register(o)
		o.leave(d.union)
	}
	for _, s := range in.said {
		d.register(s.origin)
		if s.news.whole {
			rejections = append(rejections, s.origin.set(d.union, s.news.pods, stamp(now))...)
		}
		rejections = append(rejections, s.origin.update(d.union, s.news.deltas, stamp(now))...)
	}
	return append(rejections, d.union.settle()...)
}

func (d *delivery) register(o *origin) {
	if !slices.Contains(d.origins, o) {
		d.origins = append(d.origins, o)
	}
}

func stamp(now time.Time) string { return now.Format(time.RFC3339Nano) }

// plan makes the batch anew; it must not have begun. An empty one is through at
// once.
func (d *delivery) plan() {
	d.batch = d.ledger.plan(d.union)
	for _, o := range d.origins {
		o.covered = o.left || o.seen && !o.announced
		if o.covered && !o.left {
			d.batch = withSign(d.batch, o.name)
		}
	}
	if len(d.batch) == 0 {
		d.finish()
	}
}

// advance notes that the reader took the first step of the batch.
func (d *delivery) advance() {
	d.ledger.apply(d.batch[0], d.union)
	d.batch[0] = step{}
	d.batch = d.batch[1:]
	d.begun = len(d.batch) > 0
	if !d.begun {
		d.finish()
	}
}

// finish notes that the reader knows all that the batch was to tell.
func (d *delivery) finish() {
	for _, o := range d.origins {
		o.announced = o.announced || o.covered
	}
	d.origins = slices.DeleteFunc(d.origins, func(o *origin) bool { return o.left && o.announced })
}
