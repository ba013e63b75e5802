package gc

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Cgroups are the cgroups of pods. A *cgroup.Pods of node/cgroup is one.
type Cgroups interface {
	// RemoveGone removes the cgroups of all pods for which gone returns true. It returns the pods
	// that had a cgroup, each with the reason why it stays, or nil. If a process is in a cgroup, it
	// stays. After an error the collection is repeated soon. RemoveGone is not called twice at
	// once.
	RemoveGone(gone func(uid types.UID) bool) (map[types.UID]error, error)
}

// removeCgroups removes the cgroups of pods that are gone and have no sandbox. A runtime removes
// those of containers and sandboxes only.
func (c *ContainerGC) removeCgroups(gone func(types.UID) bool) error {
	if c.opts.Cgroups == nil {
		return nil
	}
	removals, err := c.opts.Cgroups.RemoveGone(gone)
	for uid, stays := range removals {
		c.recordCgroup(uid, stays)
	}
	return err
}

func (c *ContainerGC) recordCgroup(uid types.UID, err error) {
	r := runtime.Record{Pod: runtime.PodRef{UID: uid}, Stage: runtime.StageDone, Kind: runtime.KindRemoveCgroup}
	if err != nil {
		r.Error = err.Error()
	}
	c.opts.Record.Emit(r)
}

// sandboxCounts has the number of sandboxes of each pod that the runtime has left. The cgroup of a
// sandbox is in that of its pod, so until there is none the cgroup of the pod cannot be removed.
// It is safe for concurrent use.
type sandboxCounts struct {
	mu   sync.Mutex
	left map[types.UID]int
}

func countSandboxes(pods []Pod) *sandboxCounts {
	counts := &sandboxCounts{left: map[types.UID]int{}}
	for _, pod := range pods {
		if n := len(pod.Sandboxes); n > 0 {
			counts.left[pod.UID] += n
		}
	}
	return counts
}

// remove is called for each sandbox that was removed.
func (s *sandboxCounts) remove(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[uid]--
}

func (s *sandboxCounts) any(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left[uid] > 0
}
