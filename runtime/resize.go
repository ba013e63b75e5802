package runtime

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// ResizeDue returns which of CPU and memory the newest instance n of a container has in
// another amount than its spec. It returns none if the instance does not run or the runtime
// does not report its resources, and for pods that are not [podspec.Resizable]. n may be nil. Requests
// of memory are compared if the instance reports one: its cgroup protects that memory.
func ResizeDue(pod *v1.Pod, c *v1.Container, kind podspec.ContainerKind, n *ContainerStatus) []v1.ResourceName {
	if n == nil || n.State != ContainerRunning || n.Resources == nil || kind == podspec.EphemeralContainer ||
		!podspec.Resizable(pod) {
		return nil
	}
	var due []v1.ResourceName
	limit := podspec.LimitOf(pod, c, v1.ResourceCPU)
	request, ok := c.Resources.Requests[v1.ResourceCPU]
	if !ok {
		request = limit
	}
	if shares(request) != shares(*n.Resources.Requests.Cpu()) || quota(limit) != quota(*n.Resources.Limits.Cpu()) {
		due = append(due, v1.ResourceCPU)
	}
	memory := podspec.LimitOf(pod, c, v1.ResourceMemory)
	protected, reported := n.Resources.Requests[v1.ResourceMemory]
	if memory.Value() != n.Resources.Limits.Memory().Value() ||
		reported && protected.Value() != c.Resources.Requests.Memory().Value() {
		due = append(due, v1.ResourceMemory)
	}
	return due
}

// PodResizeDue returns which of CPU and memory the pod as a whole has in another amount than its spec (KEP-5419), by
// [PodStatus].Resources. Only amounts in spec.resources count. It returns none if the status has no resources of the
// pod, and for pods that are not [podspec.Resizable]. Requests of memory are not compared: no cgroup has them.
func PodResizeDue(pod *v1.Pod, status *PodStatus) []v1.ResourceName {
	own := pod.Spec.Resources
	if own == nil || status == nil || status.Resources == nil || !podspec.Resizable(pod) {
		return nil
	}
	held, requests, limits := status.Resources, podspec.Requests(pod), podspec.Limits(pod)
	var due []v1.ResourceName
	if _, ok := own.Requests[v1.ResourceCPU]; ok && shares(*requests.Cpu()) != shares(*held.Requests.Cpu()) {
		due = append(due, v1.ResourceCPU)
	} else if _, ok := own.Limits[v1.ResourceCPU]; ok && quota(*limits.Cpu()) != quota(*held.Limits.Cpu()) {
		due = append(due, v1.ResourceCPU)
	}
	if _, ok := own.Limits[v1.ResourceMemory]; ok && limits.Memory().Value() != held.Limits.Memory().Value() {
		due = append(due, v1.ResourceMemory)
	}
	return due
}

// maxShares is the largest weight that a cgroup can have, that of 256 CPUs (kubelet: cm.MaxShares).
const maxShares = 256 * 1024

// shares returns a request of CPU as a cgroup has it: 1024 are one CPU.
func shares(request resource.Quantity) int64 {
	return min(max(request.MilliValue(), podspec.MinCPURequestMilli)*1024/1000, maxShares)
}

// quota returns a limit of CPU in thousandths, 0 for none.
func quota(limit resource.Quantity) int64 {
	if limit.IsZero() {
		return 0
	}
	return max(limit.MilliValue(), podspec.MinCPULimitMilli)
}

// ResizeRestarts reports whether the newest instance n of a container was created with other
// resources, and their change requires a restart by the resize policy. It is false if the instance
// does not run or has no record of its resources, and for pods that are not [podspec.Resizable]. n may
// be nil.
func ResizeRestarts(pod *v1.Pod, c *v1.Container, n *ContainerStatus) bool {
	if n == nil || n.State != ContainerRunning || n.ResizeHash == 0 || !podspec.Resizable(pod) {
		return false
	}
	// Agents that could not resize a pod as a whole recorded the hash without its limits.
	return n.ResizeHash != podspec.ResizeHash(pod, c) && n.ResizeHash != podspec.ResizeHash(&v1.Pod{}, c)
}
