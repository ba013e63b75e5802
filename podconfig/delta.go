package podconfig

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NewSnapshotSink returns a sink that calls set with the full list of pods after each
// Set, and after each Apply that follows the first Set. It is for code that runs a
// source without a [Mux], such as a source that wraps another, or a test. The calls of
// set are serialized; the slice must not be changed.
func NewSnapshotSink(nodeName string, set func(pods []*v1.Pod)) Sink {
	return &snapshotSink{nodeName: nodeName, set: set}
}

type snapshotSink struct {
	nodeName string
	set      func(pods []*v1.Pod)

	mu sync.Mutex
	// pods is the list passed to set last. It is shared and never written to.
	pods []*v1.Pod
	seen bool // there was a Set
}

// NodeName implements [Sink].
func (s *snapshotSink) NodeName() string { return s.nodeName }

// Set implements [Sink].
func (s *snapshotSink) Set(pods []*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods, s.seen = pods, true
	s.set(pods)
}

// Apply implements [Sink].
func (s *snapshotSink) Apply(d Delta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = applied(s.pods, d)
	if s.seen {
		s.set(s.pods)
	}
}

// applied returns a copy of pods with the delta applied.
func applied(pods []*v1.Pod, d Delta) []*v1.Pod {
	updated := make(map[types.UID]*v1.Pod, len(d.Update))
	for _, pod := range d.Update {
		if pod != nil {
			updated[pod.UID] = pod
		}
	}
	list := make([]*v1.Pod, 0, len(pods)+len(updated))
	for _, pod := range pods {
		switch {
		case pod == nil:
			continue
		case updated[pod.UID] != nil:
			pod = updated[pod.UID]
			delete(updated, pod.UID)
		case slices.Contains(d.Remove, pod.UID):
			continue
		}
		list = append(list, pod)
	}
	for _, pod := range d.Update {
		if pod != nil && updated[pod.UID] == pod { // the last one of its UID
			list = append(list, pod)
			delete(updated, pod.UID)
		}
	}
	return list
}
