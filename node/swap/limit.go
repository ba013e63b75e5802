package swap

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Behavior is how containers may use swap (kubelet's memorySwap.swapBehavior).
type Behavior string

// The behaviors.
const (
	// NoSwap gives containers none. It is the default.
	NoSwap Behavior = "NoSwap"
	// LimitedSwap gives containers of Burstable pods a part.
	LimitedSwap Behavior = "LimitedSwap"
)

// Machine has the sizes of a machine in bytes.
type Machine struct {
	Memory, Swap int64
}

// May reports whether the container gets swap with [LimitedSwap].
func May(pod *v1.Pod, c *v1.Container) bool {
	request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
	return request.Cmp(*limit) != 0 && podspec.QOSClass(pod) == v1.PodQOSBurstable && !podspec.IsCritical(pod)
}

// Limit returns the swap in bytes that the container may use with [LimitedSwap]. It is 0 if the container gets none,
// and if it requests more memory than the machine has.
func Limit(pod *v1.Pod, c *v1.Container, m Machine) int64 {
	request := c.Resources.Requests.Memory().Value()
	if !May(pod, c) || m.Memory <= 0 || request > m.Memory || request <= 0 || m.Swap <= 0 {
		return 0
	}
	// The order of the operations is kubelet's (calcSwapForBurstablePods).
	share := float64(request) / float64(m.Memory)
	if limit := share * float64(m.Swap); limit < float64(m.Swap) {
		return int64(limit)
	}
	return m.Swap
}
