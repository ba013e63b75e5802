package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
	"github.com/kubeletkit/kubeletkit/status"
)

// Manager is a [status.Manager] that keeps statuses by the rules of
// [status.Store], delivers them nowhere, and records what it was given. It is safe
// for concurrent use.
type Manager struct {
	*status.Store
	cond cond.Cond

	mu         sync.Mutex
	history    map[types.UID][]v1.PodStatus
	terminated map[types.UID]bool
	ended      []runtime.PodRef
}

var _ status.Manager = (*Manager)(nil)

// NewManager returns a manager that has no pods.
func NewManager() *Manager {
	m, err := status.New(status.Options{})
	if err != nil {
		panic(err) // the zero options are valid
	}
	return &Manager{Store: m, history: map[types.UID][]v1.PodStatus{}, terminated: map[types.UID]bool{}}
}

// Set implements [status.Manager].
func (m *Manager) Set(pod *v1.Pod, s v1.PodStatus) {
	m.change(func() {
		m.Store.Set(pod, s)
		m.note(pod.UID)
	})
}

// Terminate implements [status.Manager].
func (m *Manager) Terminate(pod *v1.Pod) {
	m.change(func() {
		m.Store.Terminate(pod)
		m.note(pod.UID)
		m.terminated[pod.UID] = true
	})
}

// Forget implements [status.Manager].
func (m *Manager) Forget(uid types.UID) {
	m.Prune(func(other types.UID) bool { return other != uid })
}

// Prune implements [status.Manager].
func (m *Manager) Prune(keep func(uid types.UID) bool) {
	m.change(func() {
		m.Store.Prune(keep)
		maps.DeleteFunc(m.history, func(uid types.UID, _ []v1.PodStatus) bool { return !keep(uid) })
		maps.DeleteFunc(m.terminated, func(uid types.UID, _ bool) bool { return !keep(uid) })
	})
}

// PodEnded implements [status.Manager].
func (m *Manager) PodEnded(pod runtime.PodRef) {
	m.Forget(pod.UID)
	m.change(func() { m.ended = append(m.ended, pod) })
}

func (m *Manager) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	m.cond.Changed()
}

// note adds the latest status of the pod to its history.
func (m *Manager) note(uid types.UID) {
	if s, ok := m.Store.Get(uid); ok {
		m.history[uid] = append(m.history[uid], *s.DeepCopy())
	}
}

// History returns the status of the pod after each Set and Terminate since it was
// last forgotten, in order.
func (m *Manager) History(uid types.UID) []v1.PodStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]v1.PodStatus, len(m.history[uid]))
	for i := range out {
		m.history[uid][i].DeepCopyInto(&out[i])
	}
	return out
}

// Terminated reports whether Terminate was called for the pod since it was last
// forgotten.
func (m *Manager) Terminated(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.terminated[uid]
}

// Ended returns the pods that PodEnded was called for, in order.
func (m *Manager) Ended() []runtime.PodRef {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ended)
}

// Until waits until wanted returns true for the status of the pod, and returns that
// status.
func (m *Manager) Until(ctx context.Context, uid types.UID, wanted func(v1.PodStatus) bool) (v1.PodStatus, error) {
	var s v1.PodStatus
	err := m.cond.Until(ctx, func() bool {
		var ok bool
		s, ok = m.Get(uid)
		return ok && wanted(s)
	}, func() string {
		return fmt.Sprintf("phase %q of pod %s, set %d times", s.Phase, uid, len(m.History(uid)))
	})
	return s, err
}

// UntilTerminated waits until Terminate is called for the pod.
func (m *Manager) UntilTerminated(ctx context.Context, uid types.UID) error {
	return m.cond.Until(ctx, func() bool { return m.Terminated(uid) }, nil)
}
