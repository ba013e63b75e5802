package runtime

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

// ResizeDue returns which of CPU and memory the newest instance n of a container has in
// another amount than its spec. It returns none if the instance does not run or the runtime
// does not report its resources, and for pods that are not [Resizable]. n may be nil. Requests
// of memory are not compared: no cgroup has them.
func ResizeDue(pod *v1.Pod, c *v1.Container, kind ContainerKind, n *ContainerStatus) []v1.ResourceName {
	if n == nil || n.State != ContainerRunning || n.Resources == nil || kind == EphemeralContainer || !Resizable(pod) {
		return nil
	}
	var due []v1.ResourceName
	limit := limitOf(pod, c, v1.ResourceCPU)
	request, ok := c.Resources.Requests[v1.ResourceCPU]
	if !ok {
		request = limit
	}
	if shares(request) != shares(*n.Resources.Requests.Cpu()) || quota(limit) != quota(*n.Resources.Limits.Cpu()) {
		due = append(due, v1.ResourceCPU)
	}
	if memory := limitOf(pod, c, v1.ResourceMemory); memory.Value() != n.Resources.Limits.Memory().Value() {
		due = append(due, v1.ResourceMemory)
	}
	return due
}

// limitOf returns the limit of a container, or else that of its pod.
func limitOf(pod *v1.Pod, c *v1.Container, name v1.ResourceName) resource.Quantity {
	limit := c.Resources.Limits[name]
	if limit.IsZero() && pod.Spec.Resources != nil {
		limit = pod.Spec.Resources.Limits[name]
	}
	return limit
}

// maxShares is the largest weight that a cgroup can have, that of 256 CPUs (kubelet: cm.MaxShares).
const maxShares = 256 * 1024

// shares returns a request of CPU as a cgroup has it: 1024 are one CPU.
func shares(request resource.Quantity) int64 {
	return min(max(request.MilliValue(), MinCPURequestMilli)*1024/1000, maxShares)
}

// quota returns a limit of CPU in thousandths, 0 for none.
func quota(limit resource.Quantity) int64 {
	if limit.IsZero() {
		return 0
	}
	return max(limit.MilliValue(), MinCPULimitMilli)
}

// ResizeRestarts reports whether the newest instance n of a container was created with other
// resources, and their change requires a restart by the resize policy. It is false if the instance
// does not run or has no record of its resources, and for pods that are not [Resizable]. n may
// be nil.
func ResizeRestarts(pod *v1.Pod, c *v1.Container, n *ContainerStatus) bool {
	return n != nil && n.State == ContainerRunning && n.ResizeHash != 0 && Resizable(pod) && n.ResizeHash != ResizeHash(c)
}

// restartedFor returns which of CPU and memory require a restart of the container when
// they change, by its resize policy.
func restartedFor(c *v1.Container) []v1.ResourceName {
	var names []v1.ResourceName
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy == v1.RestartContainer && (p.ResourceName == v1.ResourceCPU || p.ResourceName == v1.ResourceMemory) {
			names = append(names, p.ResourceName)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ResizeHash returns the hash of the resources that require a restart of the container when
// they change, 0 if there are none. An instance that was created with another hash is
// replaced.
func ResizeHash(c *v1.Container) uint64 {
	names := restartedFor(c)
	if len(names) == 0 {
		return 0
	}
	h := fnv.New64a()
	for _, name := range names {
		request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
		amounts := []int64{request.Value(), limit.Value()}
		if name == v1.ResourceCPU {
			amounts = []int64{request.MilliValue(), limit.MilliValue()}
		}
		_, _ = io.WriteString(h, fmt.Sprintln(name, amounts)) // never fails
	}
	return max(h.Sum64(), 1)
}
