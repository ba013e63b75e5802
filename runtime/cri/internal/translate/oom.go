package translate

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// OOM score adjustments (Kubernetes documentation, "Node-pressure Eviction", node
// out of memory behavior).
const (
	guaranteedOOMScore = -997
	bestEffortOOMScore = 1000
)

// systemCriticalPriority is the least priority of the system's own classes.
const (
	systemCriticalPriority = 2_000_000_000
	systemNodeCritical     = "system-node-critical"
)

// oomScoreAdj decides how early the kernel kills the container's processes when
// memory is short: the more of the machine's memory a Burstable container has
// requested, the later.
func oomScoreAdj(in *Container) int64 {
	pod := in.Pod.Spec
	if isNodeCritical(pod) {
		return guaranteedOOMScore
	}
	switch runtime.QOSClass(pod) {
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
	if in.Kind == runtime.InitContainer && runtime.IsSidecar(in.Spec) && len(pod.Spec.Containers) > 0 {
		// A sidecar is not to die before the containers that need it.
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

// podMemoryShare is the container's equal part in what the pod as a whole requests
// beyond the requests of its containers (KEP-2837).
func podMemoryShare(pod *v1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(pod) || pod.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	containers := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	rest := pod.Spec.Resources.Requests.Memory().Value() - containers.Memory().Value()
	return rest / int64(max(len(pod.Spec.Containers)+len(pod.Spec.InitContainers), 1))
}

// isNodeCritical reports whether the node does not work without the pod. The class
// alone does not tell: anyone could name it in a manifest that no API server has
// admitted, so a pod must come from the node or have the priority too.
func isNodeCritical(pod *v1.Pod) bool {
	if pod.Spec.PriorityClassName != systemNodeCritical {
		return false
	}
	return runtime.IsStatic(pod) || runtime.IsMirror(pod) ||
		pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCriticalPriority
}
