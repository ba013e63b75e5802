package fake

import (
	"context"
	"fmt"
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime/fake/cond"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// Statuses are [syncloop.Statuses] that are kept as they were set, and delivered
// nowhere. They can be the status manager of a pod syncer, too. They are safe for
// concurrent use.
type Statuses struct {
	cond cond.Cond

	mu         sync.Mutex
	set        map[types.UID][]v1.PodStatus
	terminated map[types.UID]bool
}

var _ syncloop.Statuses = (*Statuses)(nil)

// NewStatuses returns statuses of no pod.
func NewStatuses() *Statuses {
	return &Statuses{set: map[types.UID][]v1.PodStatus{}, terminated: map[types.UID]bool{}}
}

// Get returns the status that was set last.
func (s *Statuses) Get(uid types.UID) (v1.PodStatus, bool) {
	all := s.History(uid)
	if len(all) == 0 {
		return v1.PodStatus{}, false
	}
	return all[len(all)-1], true
}

// Set makes it the status of the pod.
func (s *Statuses) Set(pod *v1.Pod, st v1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set[pod.UID] = append(s.set[pod.UID], *st.DeepCopy())
	s.cond.Changed()
}

// Terminate takes note that nothing of the pod runs any more, see
// [Statuses.Terminated]. The status it leaves as it is.
func (s *Statuses) Terminate(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.terminated[pod.UID] = true
	s.cond.Changed()
}

// Forget drops what is known of a pod.
func (s *Statuses) Forget(uid types.UID) {
	s.Prune(func(other types.UID) bool { return other != uid })
}

// Prune drops the pods that keep does not want. keep must not call back.
func (s *Statuses) Prune(keep func(uid types.UID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.set, func(uid types.UID, _ []v1.PodStatus) bool { return !keep(uid) })
	maps.DeleteFunc(s.terminated, func(uid types.UID, _ bool) bool { return !keep(uid) })
	s.cond.Changed()
}

// History returns all statuses of the pod since it was last dropped, in order.
func (s *Statuses) History(uid types.UID) []v1.PodStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]v1.PodStatus, len(s.set[uid]))
	for i := range out {
		out[i] = *s.set[uid][i].DeepCopy()
	}
	return out
}

// Terminated reports whether Terminate was called for the pod.
func (s *Statuses) Terminated(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terminated[uid]
}

// Until returns when the status of the pod is as wanted, and that status.
func (s *Statuses) Until(ctx context.Context, uid types.UID, wanted func(v1.PodStatus) bool) (v1.PodStatus, error) {
	var st v1.PodStatus
	err := s.cond.Until(ctx, func() bool {
		var ok bool
		st, ok = s.Get(uid)
		return ok && wanted(st)
	}, func() string {
		return fmt.Sprintf("phase %q of pod %s, set %d times", st.Phase, uid, len(s.History(uid)))
	})
	return st, err
}

// UntilTerminated returns when Terminate was called for the pod.
func (s *Statuses) UntilTerminated(ctx context.Context, uid types.UID) error {
	return s.cond.Until(ctx, func() bool { return s.Terminated(uid) }, nil)
}
