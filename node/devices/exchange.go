package devices

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// choice returns the choice of devices for an allocation that was not made ready yet. What an earlier container was
// made ready with, and this one uses again, is fixed.
func (s *state) choice(pod *v1.Pod, container string, name v1.ResourceName) choice {
	p, g := s.pool(name), s.allocation(pod.UID, container, name)
	if g == nil || g.held {
		return choice{}
	}
	reuse := slices.DeleteFunc(s.reusable(pod, container, name), func(id string) bool {
		return !slices.Contains(g.ids, id) || !p.usable(id) && !s.fixed(pod.UID, name, id)
	})
	own := slices.DeleteFunc(slices.Clone(g.ids), func(id string) bool { return slices.Contains(reuse, id) })
	return choice{count: len(g.ids), reuse: reuse, free: p.free(own), near: s.pods[pod.UID].near[container],
		nodes: p.nodes()}
}

// usable reports whether the provider has the device, and it is healthy.
func (p *pool) usable(id string) bool { return p.health(id) == v1.ResourceHealthStatusHealthy }

// fixed reports whether a container of the pod has the device and keeps it.
func (s *state) fixed(uid types.UID, name v1.ResourceName, id string) bool {
	for _, allocations := range s.pods[uid].allocations {
		if g := allocations[name]; g != nil && (g.allocated || g.held) && slices.Contains(g.ids, id) {
			return true
		}
	}
	return false
}

// rechoose chooses the devices of an allocation that was not made ready yet again, if there are preferred ones, or one
// of its own has become unhealthy or is gone. Otherwise, and if there are too few, it keeps what it has.
func (s *state) rechoose(pod *v1.Pod, container string, name v1.ResourceName, preferred []string) {
	p, g := s.pool(name), s.allocation(pod.UID, container, name)
	if g.allocated || g.held || len(preferred) == 0 &&
		!slices.ContainsFunc(g.ids, func(id string) bool { return !p.usable(id) }) {
		return
	}
	if ids, ok := s.choice(pod, container, name).pick(slices.Concat(preferred, g.ids)); ok {
		// of those that are free now
		s.exchange(pod, container, name, ids)
	}
}

// exchange replaces devices of an allocation that was not made ready by others that nobody has. Later containers of the
// pod that use the replaced ones again get the others, too.
func (s *state) exchange(pod *v1.Pod, container string, name v1.ResourceName, ids []string) {
	p, g := s.pool(name), s.allocation(pod.UID, container, name)
	if g == nil {
		return
	}
	var from, to []string
	for _, id := range g.ids {
		if !slices.Contains(ids, id) {
			from = append(from, id)
		}
	}
	for _, id := range ids {
		if !slices.Contains(g.ids, id) {
			to = append(to, id)
		}
	}
	if len(from) == 0 {
		return
	}
	renamed := make(map[string]string, len(from))
	for i := range from {
		renamed[from[i]] = to[i]
	}
	for _, allocations := range s.pods[pod.UID].allocations {
		g := allocations[name]
		if g == nil || g.allocated || g.held {
			continue
		}
		for i, id := range g.ids {
			other, ok := renamed[id]
			if !ok {
				continue
			}
			g.ids[i] = other
			delete(g.nodes, id)
			g.nodes[other] = p.nodesOf(other)
			p.disown(id, pod.UID)
			p.owners[other] = append(p.owners[other], pod.UID)
		}
		slices.Sort(g.ids)
	}
}
