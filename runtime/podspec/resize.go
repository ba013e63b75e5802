package podspec

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// The smallest requests and limits of CPU that cgroups can express, in thousandths of a
// CPU (kubelet: cm.MinShares, cm.MinMilliCPULimit). Smaller ones are in force as these.
const (
	MinCPURequestMilli = 2
	MinCPULimitMilli   = 10
)

// Resizable reports whether the resources of the pod may have changed since it was created,
// so that its containers are compared with them (KEP-1287). Only an API server has a request
// to resize a pod, and each change of a spec increases its generation.
func Resizable(pod *v1.Pod) bool {
	return pod.Generation > 1 && pod.Annotations[AnnotationConfigSource] == SourceAPI
}

// restartedFor returns which of CPU and memory require a restart of the container when
// they change, by its resize policy.
func restartedFor(c *v1.Container) []v1.ResourceName {
	var names []v1.ResourceName
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy == v1.RestartContainer && (p.ResourceName == v1.ResourceCPU ||
			p.ResourceName == v1.ResourceMemory) {
			names = append(names, p.ResourceName)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ResizeHash returns the hash of the resources that require a restart of a container of the pod when
// they change, 0 if there are none. An instance that was created with another hash is
// replaced.
func ResizeHash(pod *v1.Pod, c *v1.Container) uint64 {
	names := restartedFor(c)
	if len(names) == 0 {
		return 0
	}
	h := fnv.New64a()
	for _, name := range names {
		request, limit := c.Resources.Requests[name], LimitOf(pod, c, name)
		amounts := []int64{request.Value(), limit.Value()}
		if name == v1.ResourceCPU {
			amounts = []int64{request.MilliValue(), limit.MilliValue()}
		}
		_, _ = io.WriteString(h, fmt.Sprintln(name, amounts)) // never fails
	}
	return max(h.Sum64(), 1)
}
