package memory

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/internal/reuse"
	"github.com/kubeletkit/kubeletkit/node/placement/memory/internal/state"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func isMemory(name v1.ResourceName) bool {
	_, huge := podspec.HugePageSize(name)
	return huge || name == v1.ResourceMemory
}

// requestOf returns the memory and huge pages in a list of requests.
func requestOf(list v1.ResourceList) (amounts, error) {
	request := amounts{}
	for name, q := range list {
		if !isMemory(name) {
			continue
		}
		size, ok := q.AsInt64()
		if !ok {
			return nil, fmt.Errorf("the request of %s, %s, is no number of bytes", name, q.String())
		}
		if size > 0 {
			request[name] = uint64(size)
		}
	}
	return request, nil
}

// passed reports whether the container is an init container without blocks, although a later one has some: what it had
// was given back.
func (s *machineState) passed(pod *v1.Pod, container string) bool {
	entries := s.entries[string(pod.UID)]
	if _, ok := entries[container]; ok {
		return false
	}
	for other := range entries {
		if slices.Contains(reuse.Ended(&pod.Spec, other), container) {
			return true
		}
	}
	return false
}

// reusable returns a function for [machineState.hints]: what init containers before the container have on the very
// nodes.
func (s *machineState) reusable(pod *v1.Pod, container string) func(numa.Nodes, v1.ResourceName) uint64 {
	var blocks []state.Block
	for _, name := range reuse.Ended(&pod.Spec, container) {
		blocks = append(blocks, s.entries[string(pod.UID)][name]...)
	}
	return func(nodes numa.Nodes, name v1.ResourceName) (size uint64) {
		for _, block := range blocks {
			if block.Type == name && numa.Of(block.NUMAAffinity...) == nodes {
				size += block.Size
			}
		}
		return size
	}
}

// allocate gives the container its blocks, unless it has them. Nothing changes if it fails.
func (s *machineState) allocate(pod *v1.Pod, c *v1.Container, hint numa.Hint) (changed bool, err error) {
	uid := string(pod.UID)
	if _, ok := s.entries[uid][c.Name]; ok || s.passed(pod, c.Name) {
		return false, nil
	}
	request, err := requestOfContainer(pod, c)
	if err != nil || len(request) == 0 {
		return false, err
	}
	reusable := s.reusable(pod, c.Name)
	nodes, err := s.choose(request, reusable, hint)
	if err != nil {
		return false, err
	}
	var blocks []state.Block
	for _, name := range slices.Sorted(maps.Keys(request)) {
		block := state.Block{NUMAAffinity: slices.Collect(nodes.All()), Type: name, Size: request[name]}
		reused := min(block.Size, reusable(nodes, name))
		s.take(block, block.Size-reused)
		s.reuse(pod, c.Name, nodes, name, reused)
		blocks = append(blocks, block)
	}
	if s.entries[uid] == nil {
		s.entries[uid] = map[string][]state.Block{}
	}
	s.entries[uid][c.Name] = blocks
	return true, nil
}

// reuse takes the amount from the blocks of earlier init containers.
func (s *machineState) reuse(pod *v1.Pod, container string, nodes numa.Nodes, resource v1.ResourceName, size uint64) {
	for _, name := range reuse.Ended(&pod.Spec, container) {
		blocks := s.entries[string(pod.UID)][name]
		for i := range blocks {
			if blocks[i].Type == resource && numa.Of(blocks[i].NUMAAffinity...) == nodes {
				part := min(size, blocks[i].Size)
				blocks[i].Size -= part
				size -= part
			}
		}
	}
}

// podHints returns the hints of the container or, if it is nil, of the pod.
func (s *machineState) podHints(pod *v1.Pod, c *v1.Container) map[string][]numa.Hint {
	container := ""
	request, err := requestOfPod(pod)
	if c != nil {
		container = c.Name
		request, err = requestOfContainer(pod, c)
	}
	if err != nil || len(request) == 0 {
		return nil // Allocate has the error
	}
	hints := s.held(pod, container)
	if c == nil && hints == nil && isWhole(pod) {
		if _, err := partition(pod, request); err != nil {
			return none(request)
		}
	}
	if _, has := s.entries[string(pod.UID)][container]; hints == nil && !has && !s.passed(pod, container) {
		for h := range s.hints(request, s.reusable(pod, container)) {
			hints = append(hints, h)
		}
	}
	if len(hints) == 0 {
		return nil // kubelet: Allocate refuses the pod
	}
	out := map[string][]numa.Hint{}
	for name := range request {
		out[string(name)] = slices.Clone(hints)
	}
	return out
}

// none returns the hints of resources that cannot be served.
func none(request amounts) map[string][]numa.Hint {
	out := map[string][]numa.Hint{}
	for name := range request {
		out[string(name)] = []numa.Hint{}
	}
	return out
}

// held returns the nodes of what the container, or the pod if its name is empty, holds already.
func (s *machineState) held(pod *v1.Pod, container string) []numa.Hint {
	var nodes numa.Nodes
	for name, blocks := range s.entries[string(pod.UID)] {
		for _, block := range blocks {
			if container == "" || container == name {
				nodes |= numa.Of(block.NUMAAffinity...)
			}
		}
	}
	if nodes == 0 {
		return nil
	}
	return []numa.Hint{{Nodes: nodes, Preferred: true}}
}
