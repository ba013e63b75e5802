package devices

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// reasonUnexpected is kubelet's reason of pods that do not get devices.
const reasonUnexpected = "UnexpectedAdmissionError"

// refuse returns the refusal of a pod, in kubelet's words.
func refuse(err error) error {
	return lifecycle.Refuse(reasonUnexpected, fmt.Sprintf("Allocate failed due to %s, which is unexpected", err))
}

// Admit gives each container of a new pod its devices, unless it has them: a component that places containers by memory
// nodes and calls [Manager.Allocate] comes before. A resize changes no devices. It implements [lifecycle.Admitter].
func (m *Manager) Admit(req lifecycle.AdmitRequest) (lifecycle.AdmitResponse, error) {
	none := lifecycle.AdmitResponse{}
	if req.Held != nil || !extended(req.Pod) {
		return none, nil
	}
	for kind, c := range podspec.Containers(&req.Pod.Spec) {
		if kind == podspec.EphemeralContainer {
			continue
		}
		if err := m.Allocate(req.Pod, c, numa.Hint{}); err != nil {
			return none, err
		}
	}
	return none, nil
}

// Refused releases the devices of a pod that was refused, and of which nothing runs. It implements
// [lifecycle.RefusalHandler].
func (m *Manager) Refused(pod *v1.Pod) { m.held.Refused(pod.UID) }

// Allocate decides which devices the container gets, near the nodes of the hint if that is possible. It calls no
// provider. If there is no provider of a resource now, but was one, the devices are chosen when it is back; so they are
// if the checkpoint cannot be read now, and with [Options].WaitForDevices if there are too few. The error is that of
// [lifecycle.Refuse]. It is idempotent, and called for the containers of a pod in their order. Nodes of an earlier call
// stay those of the container if the hint has none.
func (m *Manager) Allocate(pod *v1.Pod, container *v1.Container, hint numa.Hint) error {
	if len(container.Resources.Limits) == 0 {
		return nil
	}
	if m.held.Loaded() != nil {
		return nil // Prepare waits
	}
	m.mu.Lock()
	asked := m.requests(pod, container)
	m.mu.Unlock()
	if len(asked) == 0 {
		return nil
	}
	_, _ = m.held.Admit(pod.UID) // it is read, and not suspended
	m.mu.Lock()
	defer m.mu.Unlock()
	entry := m.pod(pod.UID)
	if _, placed := entry.near[container.Name]; !placed || hint.Nodes != 0 {
		// Admit comes after a component that has placed the container
		entry.near[container.Name] = hint.Nodes
	}
	for _, r := range asked {
		err := m.allocateNow(pod, container.Name, r, entry.near[container.Name])
		if m.opts.WaitForDevices && errors.As(err, new(*shortage)) {
			m.pools[r.name].waiting[pod.UID] = struct{}{} // Prepare waits
			continue
		}
		if err != nil {
			return refuse(err)
		}
	}
	return nil
}

// AllocatePod returns false: only containers have devices.
func (m *Manager) AllocatePod(*v1.Pod, numa.Hint) (done bool, _ error) { return false, nil }

// HasAll reports whether the container has all devices that it requests; true if it requests none or is nil, or while
// the checkpoint cannot be read, since Prepare waits for it.
func (m *Manager) HasAll(pod *v1.Pod, container *v1.Container) bool {
	if container == nil || len(container.Resources.Limits) == 0 || m.held.Loaded() != nil {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return !slices.ContainsFunc(m.requests(pod, container), func(r request) bool {
		g := m.allocation(pod.UID, container.Name, r.name)
		return g == nil || int64(len(g.ids)) != r.count
	})
}

// allocateNow gives the container its devices, or leaves it waiting for a provider. mu is held.
func (m *Manager) allocateNow(pod *v1.Pod, container string, r request, near numa.Nodes) error {
	if g := m.allocation(pod.UID, container, r.name); g != nil {
		if int64(len(g.ids)) != r.count {
			return fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", pod.UID, container,
				r.name, len(g.ids), r.count)
		}
		return nil
	}
	p := m.pools[r.name]
	if !p.serving() {
		if m.opts.FailWithoutProvider && len(p.servers) == 0 {
			return errors.New(noneHealthy(r.name))
		}
		p.waiting[pod.UID] = struct{}{}
		return nil
	}
	return m.allocate(pod, container, r.name, r.count, near)
}

// Hints returns, for each resource that the container requests, or the pod as a whole if it is nil, the sets of memory
// nodes with devices that it can have. A resource without a provider, or whose devices have no nodes, has a nil list:
// there is no preference.
func (m *Manager) Hints(pod *v1.Pod, container *v1.Container) map[string][]numa.Hint {
	if m.held.Loaded() != nil {
		return nil
	}
	m.held.ReleaseGone()
	m.mu.Lock()
	defer m.mu.Unlock()
	whole := container == nil
	if whole {
		container = &v1.Container{Resources: v1.ResourceRequirements{
			Limits: resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true}),
		}}
	}
	out := map[string][]numa.Hint{}
	for _, r := range m.requests(pod, container) {
		out[string(r.name)] = m.hints(pod, container.Name, whole, r)
	}
	return out
}

// hints returns the hints for one resource. mu is held.
func (m *Manager) hints(pod *v1.Pod, container string, whole bool, r request) []numa.Hint {
	p := m.pools[r.name]
	all := map[numa.Nodes]int{}
	for _, d := range p.devices {
		all[d.Nodes]++
	}
	if !p.serving() || len(all) == 1 && all[0] > 0 {
		return nil
	}
	has := map[string]bool{}
	if entry := m.pods[pod.UID]; entry != nil {
		for name, allocations := range entry.allocations {
			if g := allocations[r.name]; g != nil && (whole || name == container) {
				for _, id := range g.ids {
					has[id] = true
				}
			}
		}
	}
	var reuse []string
	available := slices.Collect(maps.Keys(has))
	switch {
	case len(has) > 0 && int64(len(has)) != r.count:
		return []numa.Hint{}
	case len(has) == 0:
		available = p.free(nil)
		if !whole {
			reuse = m.reusable(pod, container, r.name)
		}
		if int64(len(available)+len(reuse)) < r.count {
			if m.opts.WaitForDevices {
				return nil
			}
			return []numa.Hint{}
		}
	}
	byNodes := map[numa.Nodes]int{}
	for _, id := range available {
		byNodes[p.nodesOf(id)]++
	}
	near := make([]numa.Nodes, len(reuse))
	for i, id := range reuse {
		near[i] = p.nodesOf(id)
	}
	return hints(int(r.count), all, byNodes, near)
}

// unavailable is the error of a pod that waits.
type unavailable struct {
	error
	// refusal is what kubelet says of the pod, which it fails; "" if it does not fail it.
	refusal string
}

// noneHealthy is what kubelet says of a resource without healthy devices.
func noneHealthy(name v1.ResourceName) string {
	return fmt.Sprintf("no healthy devices present; cannot allocate unhealthy devices %s", name)
}
