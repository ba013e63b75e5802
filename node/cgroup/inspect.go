package cgroup

import (
	"context"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Inspector implements [lifecycle.InspectionWrapper]: while a container of a pod runs, its status has the resources in
// force of the pod as a whole, as the kernel has them.
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
	if err != nil || !status.ContainersRunning() {
		return status, err
	}
	i.m.mu.Lock()
	w := i.m.written[ref.UID]
	i.m.mu.Unlock()
	if w.cgroup == "" {
		return status, nil // it was not made here, or Prepare is due
	}
	inForce, err := i.m.tree.read(w.cgroup, w.resources)
	if err != nil {
		return status, nil // removed; Prepare makes it again
	}
	with := *status // the status of a runtime may be shared
	with.Resources = inForce.requirements()
	return &with, nil
}
