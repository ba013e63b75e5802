package cgroup

import (
	"os"
	"strconv"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// containerMemoryQoS returns the files of cgroup v2 that protect and slow down a container (KEP-2570; kubelet:
// generateLinuxContainerResources). allocatable is the memory of all pods, 0 if it is not known.
func containerMemoryQoS(pod *v1.Pod, c *v1.Container, p Policy, allocatable int64) map[string]string {
	request, limit := amount(c.Resources.Requests, v1.ResourceMemory), amount(c.Resources.Limits, v1.ResourceMemory)
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	files := map[string]string{}
	switch {
	case !p.MemoryReservation || request == 0:
		files["memory.min"], files["memory.low"] = "0", "0"
	case podspec.QOSClass(pod) == v1.PodQOSGuaranteed:
		files["memory.min"] = text(request)
	default:
		files["memory.low"] = text(request)
	}
	switch {
	case limit > 0:
	case resourcehelper.IsPodLevelResourcesSet(pod) && amount(pod.Spec.Resources.Limits, v1.ResourceMemory) > 0:
		return files // the cgroup of the pod slows it down
	default:
		limit = allocatable
	}
	if high := memoryHigh(request, limit, p.MemoryThrottlingFactor); high > 0 {
		files["memory.high"] = text(high)
	}
	return files
}

// memoryHigh returns the memory above which a cgroup is slowed down, in whole pages; 0 if it is not.
func memoryHigh(request, limit int64, factor float64) int64 {
	if factor == 0 || limit <= request {
		return 0
	}
	page := int64(os.Getpagesize())
	high := int64((float64(request)+float64(limit-request)*factor)/float64(page)) * page
	if high <= request {
		return 0
	}
	return high
}
