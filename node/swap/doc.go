// Package swap gives containers a part of the node's swap, as kubelet does with memorySwap.swapBehavior: LimitedSwap
// (KEP-2400).
//
// Without it, and with the behavior [NoSwap], no container may use swap. With [LimitedSwap], a container of a Burstable
// pod may use swap in proportion to the memory that it requests:
//
//	swap limit = requested memory / memory of the machine * swap of the machine
//
// These containers get none:
//
//   - those of Guaranteed, BestEffort and critical pods. Static pods are critical;
//   - containers that request no memory, and those whose request of memory is their limit: this is how a container of a
//     Burstable pod opts out;
//   - all containers on a machine with cgroup v1, or whose kernel does not limit swap.
//
// # Embedding
//
// A [Limiter] joins the lives of pods:
//
//	limiter, err := swap.New(swap.Options{Behavior: swap.LimitedSwap})
//	...
//	agent, err := kubeletkit.New(kubeletkit.Options{Join: []lifecycle.Component{limiter}})
//
// [Limit] is the formula, a pure function.
//
// # Guarantees
//
//   - The limits are those of kubelet 1.37, to the byte.
//   - A resize that changes the requested memory of a container with swap is infeasible, as in kubelet, unless the
//     container is restarted for it: its limit of swap would change.
//   - The memory and the swap of the machine are read when a container is created. If they cannot be read, the
//     container gets no swap, and the first time that is logged. A container keeps its limit when swap is turned on or
//     off.
//   - Pods without swap cost nothing.
package swap
