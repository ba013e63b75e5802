package podconfig

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// merger computes the stream from the deliveries of the sources: their offers, the
// desired pods among them, the pods that were delivered to the reader, and the batch of
// changes that leads from these to the desired ones. It has no goroutines and no locks.
type merger struct {
	// sources are the registered sources, in order.
	sources []*registration
	// registered counts the sources that were ever registered.
	registered uint64
	// offers has the states of the UIDs that are desired or delivered.
	offers *offers
	entry  *entry

	// pending are the UIDs whose desired version is not the delivered one, in no order. It
	// is never longer than the desired and the delivered pods together, however slow the
	// reader is.
	pending []*uidState
	batch   batch
	// removed counts the removed sources of which the reader has not received all changes.
	removed int
}

func newMerger(nodeName string) *merger {
	return &merger{offers: newOffers(), entry: &entry{nodeName: nodeName}}
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
	r := &registration{name: name, source: source, order: m.registered, entry: m.entry, offers: map[types.UID]*offer{}}
	m.sources = append(m.sources, r)
	return r
}

func (m *merger) remove(r *registration) []rejection {
	m.sources = slices.DeleteFunc(m.sources, func(other *registration) bool { return other == r })
	m.removed++
	r.removed = true
	r.withdrawAll(m.offers)
	return m.settle()
}

// merge handles a delivery. Like remove and restore, it returns the pods that are newly
// rejected.
func (m *merger) merge(d delivery) []rejection {
	var rejections []rejection
	switch r := d.source; {
	case r.removed:
		return nil
	case d.snapshot:
		rejections = r.set(m.offers, d.pods)
	default:
		rejections = r.apply(m.offers, d.delta)
	}
	return append(rejections, m.settle()...)
}

// restore handles pods of an earlier run of the agent. Pods of sources that are not
// registered are left out. It returns the sources that delay theirs.
func (m *merger) restore(pods []*v1.Pod) (delayed []*registration, rejections []rejection) {
	for _, r := range m.sources {
		r.restored, r.restoreAfter = podsOf(r.name, pods), restoreAfter(r.source)
		switch {
		case r.restoreAfter == nil:
			rejections = append(rejections, r.restore(m.offers)...)
		case len(r.restored) > 0:
			delayed = append(delayed, r)
		}
	}
	return delayed, append(rejections, m.settle()...)
}

// restoreDelayed handles the restored pods of a source that has delayed them.
func (m *merger) restoreDelayed(r *registration) []rejection {
	if r.removed {
		return nil
	}
	rejections := r.restore(m.offers) // none if the source has delivered a snapshot
	return append(rejections, m.settle()...)
}

// podsOf returns the pods that came from the source in an earlier run of the agent.
func podsOf(source string, pods []*v1.Pod) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool {
		return pod == nil || pod.Annotations[podspec.AnnotationConfigSource] != source
	})
}

// settle ends a step of offers.
func (m *merger) settle() []rejection {
	changed, rejections := m.offers.settle()
	for _, s := range changed {
		m.changed(s)
	}
	return rejections
}

// changed follows each change of the delivered or the desired version of a UID.
func (m *merger) changed(s *uidState) {
	s.op = 0
	switch o := s.desired; {
	case o == nil && s.delivered == nil:
		m.settled(s)
		delete(m.offers.byUID, s.uid)
	case o != nil && o.compared() && o.version == s.delivered:
		m.settled(s)
	case s.pending == 0:
		m.pending = append(m.pending, s)
		s.pending = len(m.pending)
	}
}

// settled removes the UID from pending.
func (m *merger) settled(s *uidState) {
	if s.pending == 0 {
		return
	}
	n := len(m.pending) - 1
	last := m.pending[n]
	m.pending[s.pending-1], last.pending = last, s.pending
	m.pending[n] = nil // for the garbage collector
	m.pending = m.pending[:n]
	s.pending = 0
}

// uidState has the desired version of a UID, and the version that the reader has received.
type uidState struct {
	uid types.UID
	// desired is the offer that was granted the UID, or nil.
	desired *offer
	// delivered is the version that the reader has received, or nil.
	delivered *version
	// op is the operation that leads from the delivered version to the desired one. It is
	// zero until a batch is planned. Only then the two versions are compared, because
	// most versions of a busy source are replaced before.
	op Op
	// pending is the position in merger.pending, counted from 1; 0 if it is not there.
	pending int
}

// version returns the version that the reader receives with the operation.
func (s *uidState) version() *version {
	if s.op == Remove || s.desired == nil {
		if w := s.delivered.offer.withdrawn; w != nil && fullNameOf(w.pod) == fullNameOf(s.delivered.pod) {
			return w
		}
		return s.delivered
	}
	return s.desired.current()
}

// rejected returns [SourceState].Rejected.
func (m *merger) rejected(r *registration) []Rejection {
	all := append(slices.Collect(maps.Values(r.rejected)), m.offers.losers(r)...)
	slices.SortFunc(all, func(a, b Rejection) int {
		return cmp.Or(cmp.Compare(a.Pod.FullName(), b.Pod.FullName()), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return all
}

// sourcesReady is [Mux.SourcesReady].
func (m *merger) sourcesReady() bool {
	c := m.counts()
	return c.Seen == c.Registered && m.removed == 0
}

func (m *merger) counts() SourceCounts {
	c := SourceCounts{Registered: len(m.sources)}
	for _, r := range m.sources {
		if r.seen {
			c.Seen++
		}
	}
	return c
}
