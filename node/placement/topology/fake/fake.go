// Package fake has a provider of a resource for tests of topology policies, and of what depends on the placement of
// pods.
package fake

import (
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Provider is a provider of package topology: it has a number of units of one resource on each memory node, and gives
// containers what their requests of the resource say. It is safe for concurrent use.
type Provider struct {
	resource v1.ResourceName
	capacity map[int]int

	mu sync.Mutex
	// given are the units of each container, by the pod's UID and the container's name: the nodes that they are on.
	given map[types.UID]map[string][]int
}

// New returns a provider of the resource with numbers of units, by the IDs of memory nodes.
func New(resource v1.ResourceName, units map[int]int) *Provider {
	return &Provider{resource: resource, capacity: units, given: map[types.UID]map[string][]int{}}
}

// Name returns the name of the resource.
func (p *Provider) Name() string { return string(p.resource) }

// Given returns the memory nodes of the units that the container has.
func (p *Provider) Given(uid types.UID, container string) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.given[uid][container])
}

// Hints returns the sets of nodes with enough free units. Those are preferred that have no more nodes than an empty
// machine requires.
func (p *Provider) Hints(pod *v1.Pod, container *v1.Container) map[string][]numa.Hint {
	p.mu.Lock()
	defer p.mu.Unlock()
	want, free := 0, p.free()
	for _, c := range podspec.Containers(&pod.Spec) {
		if container != nil && c.Name != container.Name {
			continue
		}
		want += p.requested(c)
		for _, node := range p.given[pod.UID][c.Name] {
			free[node]++
		}
	}
	if want == 0 {
		return nil
	}
	var all numa.Nodes
	for node := range p.capacity {
		all |= numa.Of(node)
	}
	could := func(set numa.Nodes) bool { return sum(p.capacity, set) >= want }
	can := func(set numa.Nodes) bool { return sum(free, set) >= want }
	hints := []numa.Hint{}
	for h := range numa.Hints(all, could, can) {
		hints = append(hints, h)
	}
	return map[string][]numa.Hint{string(p.resource): hints}
}

// Allocate gives the container units of the nodes of the hint first, and then of others.
func (p *Provider) Allocate(pod *v1.Pod, container *v1.Container, hint numa.Hint) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	want, free := p.requested(container), p.free()
	if want == 0 || p.given[pod.UID][container.Name] != nil {
		return nil
	}
	var units []int
	for _, near := range []bool{true, false} {
		for node := range numa.MaxNodes {
			for hint.Nodes.Has(node) == near && free[node] > 0 && len(units) < want {
				free[node]--
				units = append(units, node)
			}
		}
	}
	if len(units) < want {
		return fmt.Errorf("%d of %s requested, %d free", want, p.resource, len(units))
	}
	if p.given[pod.UID] == nil {
		p.given[pod.UID] = map[string][]int{}
	}
	p.given[pod.UID][container.Name] = units
	return nil
}

// AllocatePod returns false: only containers have units.
func (p *Provider) AllocatePod(*v1.Pod, numa.Hint) (done bool, _ error) { return false, nil }

// HasAll reports whether the container has as many units as it requests; true if it is nil.
func (p *Provider) HasAll(pod *v1.Pod, container *v1.Container) bool {
	if container == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.given[pod.UID][container.Name]) == p.requested(container)
}

// Refused takes back the units of all containers of the pod.
func (p *Provider) Refused(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.given, pod.UID)
}

func (p *Provider) requested(c *v1.Container) int {
	q := c.Resources.Requests[p.resource]
	return int(q.Value())
}

// free returns the free units by node. mu is held.
func (p *Provider) free() map[int]int {
	free := make(map[int]int, len(p.capacity))
	for node, n := range p.capacity {
		free[node] = n
	}
	for _, containers := range p.given {
		for _, units := range containers {
			for _, node := range units {
				free[node]--
			}
		}
	}
	return free
}

func sum(units map[int]int, set numa.Nodes) (n int) {
	for node := range set.All() {
		n += units[node]
	}
	return n
}
