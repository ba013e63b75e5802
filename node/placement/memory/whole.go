package memory

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/placement/memory/internal/state"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// ReasonEmptyPool is that of a pod with resources as a whole whose containers with memory of their own leave none for
// its other containers. It is kubelet's.
const ReasonEmptyPool = "EmptyPodSharedPoolError"

// isWhole reports whether the pod has resources as a whole.
func isWhole(pod *v1.Pod) bool { return resourcehelper.IsPodLevelResourcesSet(pod) }

// requestOfContainer returns what the container is given by itself. In a pod with resources as a whole, that is nothing
// if its own requests of CPU and memory do not equal its limits.
func requestOfContainer(pod *v1.Pod, c *v1.Container) (amounts, error) {
	if isWhole(pod) && !podspec.HasGuaranteedResources(c) {
		return nil, nil
	}
	return requestOf(c.Resources.Requests)
}

// requestOfPod returns what the containers of the pod need at a time or, with resources as a whole, what it requests.
func requestOfPod(pod *v1.Pod) (amounts, error) {
	if isWhole(pod) {
		return requestOf(pod.Spec.Resources.Requests)
	}
	return requestOf(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true}))
}

// names returns the resources in their order.
func (a amounts) names() []v1.ResourceName { return slices.Sorted(maps.Keys(a)) }

// blocks returns a block on the nodes for each amount but 0.
func (a amounts) blocks(nodes numa.Nodes) []state.Block {
	list := []state.Block{}
	for _, name := range a.names() {
		if a[name] > 0 {
			list = append(list, state.Block{NUMAAffinity: slices.Collect(nodes.All()), Type: name, Size: a[name]})
		}
	}
	return list
}

// partition returns which part of what a pod requests as a whole each container gets, as kubelet divides it. Containers
// with memory of their own get what they request; an init container leaves it to those after it. An init container
// without gets all that the sidecars before it leave. The other containers share what is left. The error refuses the
// pod, if others leave nothing for containers that share it.
func partition(pod *v1.Pod, request amounts) (map[string]amounts, error) {
	parts, left := map[string]amounts{}, maps.Clone(request)
	shares := false
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind == podspec.EphemeralContainer {
			continue
		}
		own, err := requestOfContainer(pod, c)
		if err != nil {
			return nil, err
		}
		lasts := kind == podspec.MainContainer || podspec.IsSidecar(c)
		switch {
		case len(own) == 0 && lasts:
			shares = true
		case len(own) == 0:
			if name := left.exhausted(); name != "" {
				return nil, lifecycle.Refuse(ReasonEmptyPool, fmt.Sprintf("pod rejected, pod has shared init "+
					"containers but no %s available for them: the sidecars before %q have all of it; request more for "+
					"the pod as a whole", name, c.Name))
			}
			parts[c.Name] = maps.Clone(left)
		default:
			parts[c.Name] = own
			for name, size := range own {
				if size > left[name] {
					return nil, fmt.Errorf("container %q requests %d bytes of %s, and the pod as a whole has %d left",
						c.Name, size, name, left[name])
				}
				if lasts {
					left[name] -= size
				}
			}
		}
	}
	if name := left.exhausted(); shares && name != "" {
		return nil, lifecycle.Refuse(ReasonEmptyPool, fmt.Sprintf("pod rejected, sum of exclusive container %s "+
			"requests equals pod budget, leaving no memory for shared containers: both are %d bytes; request more "+
			"for the pod as a whole", name, request[name]))
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		if _, has := parts[c.Name]; !has && kind != podspec.EphemeralContainer {
			parts[c.Name] = left
		}
	}
	return parts, nil
}

// exhausted returns a resource of which nothing is left, "" if there is none.
func (a amounts) exhausted() v1.ResourceName {
	for _, name := range a.names() {
		if a[name] == 0 {
			return name
		}
	}
	return ""
}

// allocatePod gives a pod its blocks as a whole, and its containers their parts, unless it has them. done is false if
// containers of it have blocks by themselves. Nothing changes if it fails.
func (s *machineState) allocatePod(pod *v1.Pod, hint numa.Hint) (done, changed bool, err error) {
	uid := string(pod.UID)
	if _, ok := s.pods[uid]; ok || len(s.entries[uid]) > 0 {
		return ok, false, nil
	}
	request, err := requestOfPod(pod)
	if err != nil || len(request) == 0 {
		return true, false, err
	}
	parts, err := partition(pod, request)
	if err != nil {
		return true, false, err
	}
	nodes, err := s.choose(request, nil, hint)
	if err != nil {
		return true, false, err
	}
	entry := state.PodEntry{MemoryBlocks: request.blocks(nodes)}
	for _, block := range entry.MemoryBlocks {
		s.take(block, block.Size)
	}
	s.pods[uid] = entry
	s.entries[uid] = map[string][]state.Block{}
	for name, part := range parts {
		s.entries[uid][name] = part.blocks(nodes)
	}
	return true, true, nil
}
