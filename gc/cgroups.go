package gc

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// PodCgroups are the cgroups of pods. A *cgroup.Pods of resources/cgroup is one. The methods
// are called from one goroutine. Remove is not called if the value is [GoneCgroups] too.
type PodCgroups interface {
	// Pods returns the UIDs of the pods that have a cgroup. If there is an error, it returns
	// those that it has found.
	Pods() ([]types.UID, error)
	// Remove removes the cgroup of a pod, if there is one. If a process is in it, it stays.
	// After an error the collection is repeated soon.
	Remove(uid types.UID) error
}

// GoneCgroups is an optional interface of [PodCgroups], found by [runtime.Optional]. With it, a
// collection looks at all cgroups once, and not once more for each gone pod.
//
// A type that embeds a *cgroup.Pods is GoneCgroups too, and its own method Remove is not called. It
// also overrides RemoveGone, or embeds PodCgroups instead.
type GoneCgroups interface {
	// RemoveGone removes the cgroups of all pods for which gone returns true. It returns the pods
	// that had a cgroup, each with the reason why one stays, or nil. After an error the
	// collection is repeated soon.
	RemoveGone(gone func(uid types.UID) bool) (map[types.UID]error, error)
}

// removeCgroups removes the cgroups of pods that are gone and have no sandbox. A runtime removes
// those of containers and sandboxes only.
func (c *Collector) removeCgroups(gone func(types.UID) bool) error {
	if c.opts.Cgroups == nil {
		return nil
	}
	if all, ok := runtime.Optional[GoneCgroups](c.opts.Cgroups); ok {
		removals, err := all.RemoveGone(gone)
		for uid, stays := range removals {
			c.recordCgroup(uid, stays)
		}
		return err
	}
	uids, err := c.opts.Cgroups.Pods()
	errs := []error{err}
	var removed []types.UID
	for _, uid := range uids {
		if !gone(uid) {
			continue
		}
		if err := c.opts.Cgroups.Remove(uid); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: removing its cgroup: %w", uid, err))
			c.recordCgroup(uid, err)
			continue
		}
		removed = append(removed, uid)
	}
	c.recordCgroups(removed)
	return errors.Join(errs...)
}

// errCgroupStays means that a cgroup is there after its removal.
var errCgroupStays = errors.New("a process is in it, or this agent may not remove it")

// recordCgroups records which of the cgroups are gone. Remove does not return that.
func (c *Collector) recordCgroups(removed []types.UID) {
	if len(removed) == 0 || c.opts.Record == nil {
		return
	}
	left, err := c.opts.Cgroups.Pods()
	if err != nil {
		return
	}
	for _, uid := range removed {
		if slices.Contains(left, uid) {
			c.recordCgroup(uid, errCgroupStays)
		} else {
			c.recordCgroup(uid, nil)
		}
	}
}

func (c *Collector) recordCgroup(uid types.UID, err error) {
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

func countSandboxes(pods []*runtime.Pod) *sandboxCounts {
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
