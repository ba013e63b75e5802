package fake

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Sink is a [podconfig.Sink] for tests that run a source without a [podconfig.Mux]. It
// keeps what the source delivers, and is safe for concurrent use. Its other methods may
// be called while the source runs.
type Sink struct {
	podconfig.SinkBase
	node string
	set  func(pods []*v1.Pod)

	mu sync.Mutex
	// pods is the current list. It may be shared with set and is never written to.
	pods     []*v1.Pod
	seen     bool // Set was called
	restored []*v1.Pod
	rejected []Rejection
	warned   []Rejection
}

// Rejection is a call of [Sink.Reject] or [Sink.Warn].
type Rejection struct {
	Pod runtime.PodRef
	Err error
}

var _ podconfig.Sink = (*Sink)(nil)

// NewSink returns a sink of the node. It calls set, if that is not nil, with the full list
// of pods after each Set, and after each Apply that follows the first Set. Calls of set do
// not overlap; set must not change the slice.
func NewSink(nodeName string, set func(pods []*v1.Pod)) *Sink {
	if set == nil {
		set = func([]*v1.Pod) {}
	}
	return &Sink{node: nodeName, set: set}
}

// Restore sets what Restored returns.
func (s *Sink) Restore(pods ...*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restored = pods
}

// Rejected returns the rejections, in the order of the calls.
func (s *Sink) Rejected() []Rejection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rejected[:len(s.rejected):len(s.rejected)]
}

// Warned returns the warnings, in the order of the calls.
func (s *Sink) Warned() []Rejection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.warned[:len(s.warned):len(s.warned)]
}

// NodeName implements [podconfig.Sink].
func (s *Sink) NodeName() string { return s.node }

// Restored implements [podconfig.Sink].
func (s *Sink) Restored() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restored
}

// Reject implements [podconfig.Sink].
func (s *Sink) Reject(pod runtime.PodRef, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejected = append(s.rejected, Rejection{pod, err})
}

// Warn implements [podconfig.Sink].
func (s *Sink) Warn(pod runtime.PodRef, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warned = append(s.warned, Rejection{pod, err})
}

// Set implements [podconfig.Sink].
func (s *Sink) Set(pods []*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods, s.seen = pods, true
	s.set(pods)
}

// Apply implements [podconfig.Sink].
func (s *Sink) Apply(d podconfig.Delta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = applied(d, s.pods)
	if s.seen {
		s.set(s.pods)
	}
}

// applied returns a copy of the list with the delta applied.
func applied(d podconfig.Delta, pods []*v1.Pod) []*v1.Pod {
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
	names := map[string]types.UID{}
	for _, pod := range d.Update {
		if pod != nil && updates[pod.UID] == pod {
			names[runtime.RefOf(pod).FullName()] = pod.UID
		}
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
	// An update takes its name from other pods.
	return slices.DeleteFunc(list, func(pod *v1.Pod) bool {
		uid, taken := names[runtime.RefOf(pod).FullName()]
		return taken && uid != pod.UID
	})
}
