package devices

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Allocation is the devices of one resource: those that a container has, or those of the node.
type Allocation struct {
	// Container is the name of the container; "" for the node.
	Container string
	Resource  v1.ResourceName
	// Devices are in the order of their IDs. Those of a container have the nodes that they had when it got them.
	Devices []Device
}

// Devices returns the devices that the containers of the pod have, in the order of the containers' and resources'
// names.
func (m *Manager) Devices(pod types.UID) (out []Allocation) {
	m.lock()
	defer m.mu.Unlock()
	entry := m.pods[pod]
	if entry == nil {
		return nil
	}
	for container, allocations := range entry.allocations {
		for name, g := range allocations {
			a := Allocation{Container: container, Resource: name}
			for _, id := range g.ids {
				a.Devices = append(a.Devices, Device{ID: id, Nodes: g.nodes[id],
					Unhealthy: m.pools[name].health(id) == v1.ResourceHealthStatusUnhealthy})
			}
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b Allocation) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Resource, b.Resource))
	})
	return out
}

// Allocatable returns the healthy devices of the node, in the order of the resources' names, also those that containers
// have.
func (m *Manager) Allocatable() (out []Allocation) {
	m.lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.pools)) {
		p := m.pools[name]
		if len(p.healthy) == 0 {
			continue
		}
		a := Allocation{Resource: name}
		for _, id := range p.healthy {
			a.Devices = append(a.Devices, p.devices[id])
		}
		out = append(out, a)
	}
	return out
}

// health returns the health of a device as its provider has reported it last. It is unknown if the provider does not
// have it.
func (p *pool) health(id string) v1.ResourceHealthStatus {
	switch d, ok := p.devices[id]; {
	case !ok:
		return v1.ResourceHealthStatusUnknown
	case d.Unhealthy:
		return v1.ResourceHealthStatusUnhealthy
	default:
		return v1.ResourceHealthStatusHealthy
	}
}

// EditStatus adds the devices of main containers and their health to the status of the pod (KEP-4680). It implements
// [lifecycle.StatusEditor].
func (m *Manager) EditStatus(pod *v1.Pod, status *v1.PodStatus) {
	if !extended(pod) {
		return
	}
	m.lock()
	defer m.mu.Unlock()
	entry := m.pods[pod.UID]
	if entry == nil {
		return
	}
	for i := range status.ContainerStatuses {
		s := &status.ContainerStatuses[i]
		allocations := entry.allocations[s.Name]
		s.AllocatedResourcesStatus = slices.DeleteFunc(s.AllocatedResourcesStatus,
			func(r v1.ResourceStatus) bool { return allocations[r.Name] != nil })
		for _, name := range slices.Sorted(maps.Keys(allocations)) {
			r := v1.ResourceStatus{Name: name}
			for _, id := range allocations[name].ids {
				r.Resources = append(r.Resources, v1.ResourceHealth{ResourceID: v1.ResourceID(id),
					Health: m.pools[name].health(id)})
			}
			s.AllocatedResourcesStatus = append(s.AllocatedResourcesStatus, r)
		}
	}
}
