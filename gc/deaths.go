package gc

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// PodCollector is an optional interface of a [GarbageCollector].
type PodCollector interface {
	// CollectPod requests that the dead containers of one pod that the policy does not keep
	// are removed soon. It is called when a container of the pod has ended (kubelet:
	// cleanUpContainersInPod), so that a crash loop does not leave a container behind for
	// each crash until the next collection. It never blocks; of several requests for a pod
	// the latest counts.
	CollectPod(status *runtime.PodStatus)
}

var _ PodCollector = (*Collector)(nil)

// CollectPod implements [PodCollector]. It does nothing without [Options].PodPlan.
func (c *Collector) CollectPod(status *runtime.PodStatus) {
	if c.opts.PodPlan == nil || status == nil {
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
func (c *Collector) collectDead(ctx context.Context) {
	c.mu.Lock()
	died := c.died
	c.died = map[types.UID]*runtime.PodStatus{}
	c.mu.Unlock()
	in := Input{Policy: c.opts.Policy, Now: time.Now()}
	for _, status := range died {
		if !c.gone(status.UID) { // otherwise the next collection removes all of it, with fewer calls
			in.Pods = append(in.Pods, Pod{Pod: podOf(status)})
		}
	}
	var plan Removal
	if err := runtime.Recover(func() error { plan = c.opts.PodPlan(in); return nil }); err != nil {
		c.log.Error(err, "The plan has failed; dead containers are left to the next collection", "callback", "Options.PodPlan")
		return
	}
	// In parallel, so that one that cannot be removed does not delay those of other pods.
	_, errs := each(c.opts.Parallel, plan.Containers, nil, func(r ContainerRemoval) error { return c.removeContainer(ctx, r) })
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
