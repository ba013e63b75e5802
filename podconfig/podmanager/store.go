package podmanager

import (
	"cmp"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Store is the default [Manager], in memory.
type Store struct {
	mu      sync.RWMutex
	pods    index
	mirrors index
	// desired is the last Snapshot. It is nil if the state has changed since.
	desired *Desired
}

// New returns an empty Store.
func New() *Store { return &Store{} }

// Set adds the pod, or replaces the pod of the same UID.
func (s *Store) Set(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.desired = nil
	// A pod turns into a mirror pod only if its source is faulty. Then it must not be
	// in both indexes.
	if podspec.IsMirror(pod) {
		s.pods.remove(pod.UID)
		s.mirrors.set(pod)
	} else {
		s.mirrors.remove(pod.UID)
		s.pods.set(pod)
	}
}

// Remove removes the pod or mirror pod that has the UID of the given pod. Another pod
// of the same full name stays.
func (s *Store) Remove(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.desired = nil
	s.pods.remove(pod.UID)
	s.mirrors.remove(pod.UID)
}

// Pods returns the desired pods without mirror pods, sorted by namespace, name and
// UID. It copies nothing.
func (s *Store) Pods() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods.snapshot()
}

// Snapshot returns the whole state as of one moment. It copies no pods. Until the
// state changes, all calls return the same slices. The first change after a call
// copies the list of pointers that it changes.
func (s *Store) Snapshot() Desired {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desired == nil {
		s.desired = &Desired{Pods: s.pods.snapshot(), Mirrors: s.mirrors.snapshot()}
		for _, mirror := range s.desired.Mirrors {
			if _, ok := s.pods.byName[keyOf(mirror)]; !ok {
				s.desired.OrphanedMirrors = append(s.desired.OrphanedMirrors, mirror)
			}
		}
	}
	return *s.desired
}

// ByUID returns the pod of the UID. It never returns a mirror pod.
func (s *Store) ByUID(uid types.UID) (*v1.Pod, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	pod, ok := s.pods.byUID[uid]
	return pod, ok
}

// ByName returns the pod of the full name. It never returns a mirror pod. If two pods
// have the name, it returns the pod that was set last.
func (s *Store) ByName(namespace, name string) (*v1.Pod, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	pod, ok := s.pods.byName[fullName{namespace, name}]
	return pod, ok
}

// MirrorOf returns the mirror pod of a static pod.
func (s *Store) MirrorOf(pod *v1.Pod) (*v1.Pod, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	mirror, ok := s.mirrors.byName[keyOf(pod)]
	return mirror, ok
}

// StaticOf returns the static pod of a mirror pod.
func (s *Store) StaticOf(mirror *v1.Pod) (*v1.Pod, bool) {
	return s.ByName(mirror.Namespace, mirror.Name)
}

// TranslateUID returns the UID of the static pod if uid is that of its mirror pod.
// Otherwise it returns uid. Users of an API server see only the mirror pod's UID.
func (s *Store) TranslateUID(uid types.UID) types.UID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if mirror, ok := s.mirrors.byUID[uid]; ok {
		if pod, ok := s.pods.byName[keyOf(mirror)]; ok {
			return pod.UID
		}
	}
	return uid
}

// fullName is a namespace and a name. At most one pod of a full name may run.
type fullName struct{ namespace, name string }

func (n fullName) compare(o fullName) int {
	return cmp.Or(cmp.Compare(n.namespace, o.namespace), cmp.Compare(n.name, o.name))
}

func keyOf(pod *v1.Pod) fullName { return fullName{pod.Namespace, pod.Name} }

// index holds pods by UID, by full name, and in order.
type index struct {
	byUID  map[types.UID]*v1.Pod
	byName map[fullName]*v1.Pod
	// sorted holds all pods in order. If shared is set, callers hold the slice, and it
	// is copied before it changes. So a read copies nothing, and a write copies the
	// pointers at most once.
	sorted []*v1.Pod
	shared bool
}

func order(a, b *v1.Pod) int {
	return cmp.Or(keyOf(a).compare(keyOf(b)), cmp.Compare(a.UID, b.UID))
}

func (x *index) snapshot() []*v1.Pod {
	x.shared = true
	return x.sorted[:len(x.sorted):len(x.sorted)]
}

// own copies sorted if callers hold it.
func (x *index) own() {
	if x.shared {
		x.sorted, x.shared = slices.Clone(x.sorted), false
	}
}

func (x *index) set(pod *v1.Pod) {
	if x.byUID == nil {
		x.byUID, x.byName = map[types.UID]*v1.Pod{}, map[fullName]*v1.Pod{}
	}
	if old := x.byUID[pod.UID]; old != nil && keyOf(old) != keyOf(pod) {
		x.remove(pod.UID)
	}
	x.own()
	at, found := slices.BinarySearchFunc(x.sorted, pod, order)
	if found {
		x.sorted[at] = pod
	} else {
		x.sorted = slices.Insert(x.sorted, at, pod)
	}
	x.byUID[pod.UID] = pod
	x.byName[keyOf(pod)] = pod
}

func (x *index) remove(uid types.UID) {
	pod := x.byUID[uid]
	if pod == nil {
		return
	}
	x.own()
	at, _ := slices.BinarySearchFunc(x.sorted, pod, order)
	x.sorted = slices.Delete(x.sorted, at, at+1)
	delete(x.byUID, uid)

	key := keyOf(pod)
	if x.byName[key].UID != uid {
		return // a pod that was set later has the name
	}
	delete(x.byName, key)
	// A pod of the same name that was set earlier is next to it in the order.
	for _, i := range [...]int{at - 1, at} {
		if i >= 0 && i < len(x.sorted) && keyOf(x.sorted[i]) == key {
			x.byName[key] = x.sorted[i]
		}
	}
}
