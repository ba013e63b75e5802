package podconfig

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// merger computes the stream from the deliveries of the sources: their offers, the
// desired pods among them, the pods that were delivered to the reader, and the batch of
// changes that leads from these to the desired ones. It has no goroutines and no locks.
type merger struct {
	// sources are the registered sources, in order.
	sources []*registration
	// registered counts the sources that were ever registered.
	registered uint64
	claims     *claims

	// delivered has the pods that the reader knows.
	delivered map[types.UID]*version
	// pending has the UIDs whose desired version is not the delivered one. The step is
	// zero until a batch is planned. Only then the two versions are compared, because
	// most versions of a busy source are replaced before. pending is never larger than
	// the desired and the delivered pods together, however slow the reader is.
	pending  map[types.UID]step
	comparer comparer
	batch    batch
	// removed counts the removed sources of which the reader has not received all changes.
	removed int
}

func newMerger() *merger {
	return &merger{claims: newClaims(), delivered: map[types.UID]*version{}, pending: map[types.UID]step{}}
}

// find returns the registered source of that name, or nil.
func (m *merger) find(name string) *registration {
	if i := slices.IndexFunc(m.sources, func(r *registration) bool { return r.name == name }); i >= 0 {
		return m.sources[i]
	}
	return nil
}

func (m *merger) add(name string, source Source) *registration {
	m.registered++
	r := &registration{name: name, source: source, order: m.registered, offers: map[types.UID]*offer{}}
	m.sources = append(m.sources, r)
	return r
}

func (m *merger) remove(r *registration) []rejection {
	m.sources = slices.DeleteFunc(m.sources, func(other *registration) bool { return other == r })
	m.removed++
	r.removed = true
	r.withdrawAll(m.claims)
	return m.settle()
}

// set handles a snapshot of the source. Like apply and restore, it returns the pods
// that are newly rejected.
func (m *merger) set(r *registration, pods []*v1.Pod) []rejection {
	return append(r.set(m.claims, pods), m.settle()...)
}

// apply handles a delta of the source.
func (m *merger) apply(r *registration, d Delta) []rejection {
	return append(r.apply(m.claims, d), m.settle()...)
}

// restore handles pods of an earlier run of the agent. Pods of sources that are not
// registered are left out.
func (m *merger) restore(pods []*v1.Pod) []rejection {
	var rejections []rejection
	for _, r := range m.sources {
		rejections = append(rejections, r.restore(m.claims, podsOf(r.name, pods))...)
	}
	return append(rejections, m.settle()...)
}

// podsOf returns the pods that came from the source in an earlier run of the agent.
func podsOf(source string, pods []*v1.Pod) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool {
		return pod == nil || pod.Annotations[runtime.AnnotationConfigSource] != source
	})
}

// settle ends a step of claims.
func (m *merger) settle() []rejection {
	changed, rejections := m.claims.settle()
	for _, uid := range changed {
		m.changed(uid)
	}
	return rejections
}

// changed follows each change of the delivered or the desired version of a UID.
func (m *merger) changed(uid types.UID) {
	o := m.claims.byUID[uid]
	if (o == nil || o.compared()) && o.current() == m.delivered[uid] {
		delete(m.pending, uid)
	} else {
		m.pending[uid] = step{}
	}
}

// step is the operation that leads from the delivered version of a UID to the desired
// one. One of them may be nil.
type step struct {
	op       Op
	from, to *version
}

// version returns the version that the reader receives with the operation.
func (s step) version() *version {
	if s.op == Remove || s.to == nil {
		return s.from
	}
	return s.to
}

// allSeen is [Mux.AllSeen].
func (m *merger) allSeen() bool {
	c := m.counts()
	return c.seen == c.registered && m.removed == 0
}

// sourceCounts are the numbers of [Metrics].Sources.
type sourceCounts struct{ registered, seen int }

func (m *merger) counts() sourceCounts {
	c := sourceCounts{registered: len(m.sources)}
	for _, r := range m.sources {
		if r.seen {
			c.seen++
		}
	}
	return c
}
