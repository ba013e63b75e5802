package gc

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// PodCgroups are the cgroups of pods. A *cgroup.Pods of resources/cgroup is one. The methods
// are called from one goroutine.
type PodCgroups interface {
	// Pods returns the UIDs of the pods that have a cgroup. If there is an error, it returns
	// those that it has found.
	Pods() ([]types.UID, error)
	// Remove removes the cgroup of a pod, if there is one. If a process is in it, it stays.
	// After an error the collection is repeated soon.
	Remove(uid types.UID) error
}

// removeCgroups removes the cgroups of gone pods. A runtime removes those of containers and
// sandboxes only.
func (c *Collector) removeCgroups() error {
	if c.opts.Cgroups == nil {
		return nil
	}
	uids, err := c.opts.Cgroups.Pods()
	errs := []error{err}
	for _, uid := range uids {
		if !c.gone(uid) {
			continue
		}
		if err := c.opts.Cgroups.Remove(uid); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: removing its cgroup: %w", uid, err))
			continue
		}
	}
	return errors.Join(errs...)
}
