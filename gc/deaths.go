package gc

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// CollectPod implements [Collector]. It does nothing if [Options].Plan was set.
func (c *ContainerGC) CollectPod(status *runtime.PodStatus) {
	if c.ownPlan || status == nil {
		return
	}
	c.mu.Lock()
	c.died[status.UID] = status
	c.mu.Unlock()
	select {
	case c.deaths <- struct{}{}:
	default: // there is a token already
	}
}

// collectDead removes the dead containers of the pods in died. What cannot be removed is
// left to the next collection.
func (c *ContainerGC) collectDead(ctx context.Context) {
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-c.busy }()
	c.mu.Lock()
	died := c.died
	c.died = map[types.UID]*runtime.PodStatus{}
	c.mu.Unlock()
	policy := c.opts.Policy
	// As in kubelet, the last instance stays until the next collection, which has the limit of the whole node.
	policy.MaxContainers, policy.MaxPerContainer = 0, max(1, policy.MaxPerContainer)
	in := Input{Policy: policy, Now: time.Now()}
	for _, status := range died {
		if !c.gone(status.UID) { // otherwise the next collection removes all of it, with fewer calls
			in.Pods = append(in.Pods, Pod{Pod: podOf(status)})
		}
	}
	// In parallel, so that one that cannot be removed does not delay those of other pods.
	_, errs := each(c.opts.Parallel, Plan(in).Containers, nil,
		func(r ContainerRemoval) error { return c.removeContainer(ctx, r) })
	for _, err := range errs {
		if ctx.Err() == nil {
			c.log.V(1).Info("A dead container is left to the next collection", "err", err.Error())
		}
	}
}

// podOf returns the pod as a list would.
func podOf(status *runtime.PodStatus) *runtime.Pod {
	pod := &runtime.Pod{PodRef: status.PodRef}
	for i := range status.Containers {
		pod.Containers = append(pod.Containers, status.Containers[i].Container)
	}
	for i := range status.Sandboxes {
		pod.Sandboxes = append(pod.Sandboxes, status.Sandboxes[i].Sandbox)
	}
	return pod
}
