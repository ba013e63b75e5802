// Package admission decides at the node whether a pod may run on it, with and without an API server. It
// repeats checks of the scheduler, as kubelet does: a static pod has no scheduler, and another component may have bound
// a pod to the node, or the node may have changed meanwhile.
//
// # Vocabulary
//
//   - The request of a pod is the sum of what its containers request, as the API computes
//     it, with the overhead of its runtime class.
//   - An extended resource is one outside of kubernetes.io, such as example.com/gpu.
//   - A pod is critical if it is static, or if its priority is at least that of the system
//     priority classes.
//   - Preemption ends other pods to make room for a critical pod.
//
// # Checks
//
// [Failures] is a pure function: it compares one pod with the node and with the pods that
// hold resources of the node. An [Admitter] applies it in an agent, after the checks of
// syncloop.Limits for the operating system and host ports:
//
//   - the label kubernetes.io/os of the pod, spec.nodeName, spec.nodeSelector and required
//     node affinity;
//   - taints with the effect NoExecute, except for static pods;
//   - the number of pods, and the request of each resource, against allocatable. Extended
//     resources that the node does not have are ignored, as in kubelet: they belong to the
//     cluster;
//   - the features that the pod needs against those that the node declares (KEP-5328), such
//     as the action RestartAllContainers of restart rules; pods with resource claims are refused. The
//     [Admitter] has this check last.
//
// Reasons and messages in the pod's status are kubelet's: OutOfcpu, OutOfpods,
// NodeAffinity, TaintToleration and so on.
//
// # Guarantees
//
//   - While labels and taints of the node are not known from the API server, or if there is none, affinity and
//     taints are not checked. So a pod that was admitted before a reboot is not refused
//     while the API server cannot be reached.
//   - A critical pod is refused for lack of resources only if there is no set of pods that
//     it may preempt. Few and small pods are preempted: first BestEffort, then Burstable,
//     then Guaranteed pods.
//   - Pods that are being preempted count as gone for the next critical pod, and still hold
//     their resources for all others.
//
// # Differences from kubelet 1.37
//
// Kubelet stops all work of the node until the preempted pods have ended. Here other pods go on, and the critical pod
// starts when they have ended. A critical pod that needs a feature that the node does not declare is refused before
// other pods are preempted for it; in kubelet they end first. A critical pod for which no pods can make room is refused
// for the resource that is missing; in kubelet the reason is UnexpectedAdmissionError.
package admission
