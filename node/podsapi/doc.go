// Package podsapi serves kubelet's pods API (KEP-4188) on a unix socket: the pods of the node with their current
// status, for network plugins and monitors that are to work without an API server. It has Pods of v1alpha1: ListPods,
// GetPod, WatchPods.
//
// # Guarantees
//
//   - As in kubelet, the pods are those that the sources have delivered, static pods with their own UID, and of a pod
//     for which the agent has no status yet, the answer has that of the source without its readiness. Until all sources
//     have delivered their pods, requests fail with the code FailedPrecondition.
//   - A watch begins with an ADDED event for each pod and INITIAL_SYNC_COMPLETE. Then each pod that the agent generates
//     a first status for is ADDED, and MODIFIED when the pod or its status has changed. When the pod has ended and its
//     volumes are unmounted, it is DELETED, also while a list still has it, after its last status if the agent has
//     it. That event has its name, namespace and UID.
//   - A watch has at most one event of a pod in its queue: a slow client receives the latest state of each pod, and
//     misses states in between. It is not disconnected.
//   - Requests of ListPods and GetPod above the rate are refused with the code ResourceExhausted. The rate is
//     kubelet's, 100 in a second, and 10 at once.
//   - A socket that an earlier agent has left is replaced in one step. The socket stays when Run returns, as kubelet's
//     does.
//   - A server without requests costs one goroutine, and a watch three.
//
// # Differences from kubelet 1.37
//
//   - Kubelet ends a watch whose client is 100 events behind with the code ResourceExhausted.
//   - Kubelet sends no event when the pod has changed without its status, and none when a pod that had ended before the
//     watch is gone.
//   - Of a static pod that is removed, kubelet sends ADDED again with its last status but one before DELETED. Here the
//     event is MODIFIED, with the status in which it has ended.
package podsapi
