package podconfig

import (
	"cmp"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Manager holds the desired state: the pods that should run on this node, and
// beside them the mirror pods, by which an API server knows the static ones. A
// mirror pod has the full name of its static pod and a UID of its own.
//
// Pods and slices that a Manager hands out are shared and must not be changed. It
// is safe for concurrent use.
type Manager struct {
	mu      sync.RWMutex
	pods    index
	mirrors index
	// desired is the last Snapshot; nil if something has changed since.
	desired *Desired
}

// NewManager returns an empty Manager.
func NewManager() *Manager { return &Manager{} }

// Set adds the pod, or replaces the one of the same UID.
func (m *Manager) Set(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.desired = nil
	// A pod may turn into a mirror pod only by a mistake of its source; it must not
	// stand on both sides then.
	if runtime.IsMirror(pod) {
		m.pods.remove(pod.UID)
		m.mirrors.set(pod)
	} else {
		m.mirrors.remove(pod.UID)
		m.pods.set(pod)
	}
}

// Remove removes the pod or mirror pod that has the UID of the given one, if it is
// there. Another pod of the same full name stays.
func (m *Manager) Remove(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.desired = nil
	m.pods.remove(pod.UID)
	m.mirrors.remove(pod.UID)
}

// Pods returns the pods that should run, without mirror pods, sorted by namespace,
// name and UID. It copies nothing, as [Manager.Snapshot].
func (m *Manager) Pods() []*v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods.snapshot()
}

// Desired is the state of a [Manager] at one moment.
type Desired struct {
	// Pods that should run, and Mirrors, each sorted by namespace, name and UID.
	Pods, Mirrors []*v1.Pod
	// OrphanedMirrors are those of the mirrors whose static pod is gone.
	OrphanedMirrors []*v1.Pod
}

// Snapshot returns the whole state as of one moment. It copies no pods, and the
// slices are shared by all who ask until the state changes; only the first change
// after that copies the list, of pointers, that it changes.
func (m *Manager) Snapshot() Desired {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.desired == nil {
		m.desired = &Desired{Pods: m.pods.snapshot(), Mirrors: m.mirrors.snapshot()}
		for _, mirror := range m.desired.Mirrors {
			if _, ok := m.pods.byName[keyOf(mirror)]; !ok {
				m.desired.OrphanedMirrors = append(m.desired.OrphanedMirrors, mirror)
			}
		}
	}
	return *m.desired
}

// ByUID returns the pod, never a mirror pod, of that UID.
func (m *Manager) ByUID(uid types.UID) (*v1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	pod, ok := m.pods.byUID[uid]
	return pod, ok
}

// ByName returns the pod, never a mirror pod, of that full name. While two of the
// same name are there, one on its way out, it is the one that was set last.
func (m *Manager) ByName(namespace, name string) (*v1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	pod, ok := m.pods.byName[fullName{namespace, name}]
	return pod, ok
}

// MirrorOf returns the mirror pod of a static pod.
func (m *Manager) MirrorOf(pod *v1.Pod) (*v1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	mirror, ok := m.mirrors.byName[keyOf(pod)]
	return mirror, ok
}

// StaticOf returns the static pod that a mirror pod mirrors.
func (m *Manager) StaticOf(mirror *v1.Pod) (*v1.Pod, bool) {
	return m.ByName(mirror.Namespace, mirror.Name)
}

// TranslateUID returns the UID of the static pod if uid is that of its mirror pod,
// else uid. What comes from users may be either.
func (m *Manager) TranslateUID(uid types.UID) types.UID {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if mirror, ok := m.mirrors.byUID[uid]; ok {
		if pod, ok := m.pods.byName[keyOf(mirror)]; ok {
			return pod.UID
		}
	}
	return uid
}

func keyOf(pod *v1.Pod) fullName { return fullName{pod.Namespace, pod.Name} }

// index holds pods by UID and by full name, and in order.
type index struct {
	byUID  map[types.UID]*v1.Pod
	byName map[fullName]*v1.Pod
	// sorted has all pods in order. While shared is set it was handed out and is
	// copied before it changes, so that readers pay nothing and a write pays at most
	// one copy of pointers.
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

// own makes sorted safe to write to.
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
		return // a newer pod has the name
	}
	delete(x.byName, key)
	// An older pod of the same name stands beside it in the order.
	for _, i := range [...]int{at - 1, at} {
		if i >= 0 && i < len(x.sorted) && keyOf(x.sorted[i]) == key {
			x.byName[key] = x.sorted[i]
		}
	}
}
