package podconfig

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NewSnapshotSink returns a sink that calls set with the full list of pods after each
// Set, and after each Apply that follows the first Set. It is for code that runs a
// source without a [Mux], such as a source that wraps another source, or a test. Calls
// of set do not overlap; set must not change the slice.
func NewSnapshotSink(nodeName string, set func(pods []*v1.Pod)) Sink {
	return &snapshotSink{nodeName: nodeName, set: set}
}

type snapshotSink struct {
	nodeName string
	set      func(pods []*v1.Pod)

	mu sync.Mutex
	// pods is the current list. It may be shared with set and is never written to.
	pods []*v1.Pod
	seen bool // Set was called
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
	s.pods = d.appliedTo(s.pods)
	if s.seen {
		s.set(s.pods)
	}
}

// appliedTo returns a copy of the list with the delta applied.
func (d Delta) appliedTo(pods []*v1.Pod) []*v1.Pod {
	updates := make(map[types.UID]*v1.Pod, len(d.Update))
	for _, pod := range d.Update {
		if pod != nil {
			updates[pod.UID] = pod
		}
	}
	removed := make(map[types.UID]bool, len(d.Remove))
	for _, uid := range d.Remove {
		removed[uid] = true
	}
	list := make([]*v1.Pod, 0, len(pods)+len(updates))
	for _, pod := range pods {
		switch {
		case pod == nil:
		case updates[pod.UID] != nil:
			list = append(list, updates[pod.UID])
			delete(updates, pod.UID)
		case !removed[pod.UID]:
			list = append(list, pod)
		}
	}
	for _, pod := range d.Update {
		if pod != nil && updates[pod.UID] == pod {
			list = append(list, pod)
			delete(updates, pod.UID)
		}
	}
	return list
}
