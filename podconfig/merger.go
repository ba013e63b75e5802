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
	delivered map[types.UID]version
	// pending has the UIDs whose desired pod differs from the delivered one, and how. It
	// is never larger than the desired and the delivered pods together, however slow
	// the reader is.
	pending map[types.UID]Op
	batch   batch
	// removed counts the removed sources of which the reader has not received all changes.
	removed int
}

func newMerger() *merger {
	return &merger{claims: newClaims(), delivered: map[types.UID]version{}, pending: map[types.UID]Op{}}
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
		m.compare(uid)
	}
	return rejections
}

// compare brings pending up to date.
func (m *merger) compare(uid types.UID) {
	desired := m.claims.desired(uid)
	if op := compare(m.delivered[uid], desired); op != 0 {
		m.pending[uid] = op
		return
	}
	delete(m.pending, uid)
	if desired.pod != nil {
		m.delivered[uid] = desired // the same pod, so that only one copy is kept
	}
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
