package translate

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// OOM score adjustments (Kubernetes documentation, "Node-pressure Eviction", node
// out of memory behavior).
const (
	guaranteedOOMScore = -997
	bestEffortOOMScore = 1000
)

// systemNodeCritical is the priority class of pods that the node needs.
const systemNodeCritical = "system-node-critical"

// oomScoreAdj returns the OOM score adjustment of the container: the higher it is, the
// earlier the kernel kills its processes when memory is short. For a Burstable container
// it decreases with the share of the machine's memory that the container requests.
func oomScoreAdj(in *Container) int64 {
	pod := in.Pod.Spec
	if isNodeCritical(pod) {
		return guaranteedOOMScore
	}
	switch podspec.QOSClass(pod) {
	case v1.PodQOSGuaranteed:
		return guaranteedOOMScore
	case v1.PodQOSBestEffort:
		return bestEffortOOMScore
	}

	capacity := in.Pod.Node.MemoryCapacity
	if capacity <= 0 {
		capacity = in.Pod.Host.Allocatable.Memory().Value()
	}
	if capacity <= 0 {
		return bestEffortOOMScore - 1
	}
	request := memoryRequest(in.Spec)
	if in.Kind == podspec.InitContainer && podspec.IsSidecar(in.Spec) && len(pod.Spec.Containers) > 0 {
		// A sidecar must not be killed before the containers that need it.
		least := memoryRequest(&pod.Spec.Containers[0])
		for i := range pod.Spec.Containers[1:] {
			least = min(least, memoryRequest(&pod.Spec.Containers[i+1]))
		}
		request = max(request, least)
	}
	score := 1000 - 1000*(request+podMemoryShare(pod))/capacity
	return min(max(score, 1000+guaranteedOOMScore), bestEffortOOMScore-1)
}

func memoryRequest(c *v1.Container) int64 { return c.Resources.Requests.Memory().Value() }

// podMemoryShare returns the container's equal share of the memory that the pod requests
// beyond the requests of its containers (KEP-2837).
func podMemoryShare(pod *v1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(pod) || pod.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	containers := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	rest := pod.Spec.Resources.Requests.Memory().Value() - containers.Memory().Value()
	return max(rest, 0) / int64(max(len(pod.Spec.Containers)+len(pod.Spec.InitContainers), 1))
}

// isNodeCritical reports whether the pod has the class of pods that the node needs. A
// manifest that no API server has admitted could have any class, so the pod must also be
// static or have the priority of the class.
func isNodeCritical(pod *v1.Pod) bool {
	return pod.Spec.PriorityClassName == systemNodeCritical && podspec.IsCritical(pod)
}
