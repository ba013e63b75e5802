package runtime

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// ResizeDue returns which of CPU and memory the newest instance n of a container has in
// another amount than its spec. It returns none if the instance does not run or the runtime
// does not report its resources, and for pods that are not [podspec.Resizable]. n may be nil. Requests
// of memory are not compared: no cgroup has them.
func ResizeDue(pod *v1.Pod, c *v1.Container, kind podspec.ContainerKind, n *ContainerStatus) []v1.ResourceName {
	if n == nil || n.State != ContainerRunning || n.Resources == nil || kind == podspec.EphemeralContainer || !podspec.Resizable(pod) {
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
	return n != nil && n.State == ContainerRunning && n.ResizeHash != 0 && podspec.Resizable(pod) && n.ResizeHash != podspec.ResizeHash(c)
}
