package cpus

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Inspector implements [lifecycle.InspectionWrapper]: a container with exclusive CPUs, whose limit is not enforced, has
// the number of its CPUs as limit in force. Otherwise the difference from its spec would be taken for a resize.
func (m *Manager) Inspector(inner runtime.Inspector) runtime.Inspector { return &inspector{m, inner} }

type inspector struct {
	m     *Manager
	inner runtime.Inspector
}

// Unwrap makes the abilities of the runtime visible, see [runtime.Optional].
func (i *inspector) Unwrap() any { return i.inner }

// InspectPod implements [runtime.Inspector].
func (i *inspector) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	status, err := i.inner.InspectPod(ctx, ref)
	if err != nil {
		return status, err
	}
	i.m.dropExited(ref.UID, status)
	if i.m.opts.KeepQuota || !i.m.HasExclusive(ref.UID) {
		return status, nil
	}
	with, copied := status, false
	for at := range status.Containers {
		c := &status.Containers[at]
		n := i.m.size(ref.UID, c.Name)
		if n == 0 || c.Resources == nil || !c.Resources.Limits.Cpu().IsZero() {
			continue
		}
		if !copied { // the status of a runtime may be shared
			changed := *status
			changed.Containers = slices.Clone(status.Containers)
			with, copied = &changed, true
		}
		limits := maps.Clone(c.Resources.Limits)
		if limits == nil {
			limits = v1.ResourceList{}
		}
		limits[v1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		resources := *c.Resources
		resources.Limits = limits
		with.Containers[at].Resources = &resources
	}
	return with, nil
}

// dropExited forgets the containers whose CPUs need not be changed any more.
func (m *Manager) dropExited(uid types.UID, status *runtime.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil || len(p.instances) == 0 {
		return
	}
	for i := range status.Containers {
		if c := &status.Containers[i]; c.State == runtime.ContainerExited {
			delete(p.instances, c.ID)
		}
	}
}
