// Package topology places containers near their memory: it asks the providers of resources, such as CPUs, memory and
// devices, on which memory nodes (NUMA nodes) they can serve a container, finds the nodes that suit all of them, and
// has each provider allocate there. It is kubelet's topology manager (KEP-693).
//
// # Vocabulary
//
//   - A [Provider] allocates one or more resources. It offers hints: sets of nodes, see [numa.Hint]. A container holds
//     what a provider has allocated to it. The manager finds the components of its agent that are one.
//   - A [Policy] merges the hints of all providers into one, and decides whether the pod may run with it.
//   - The scope is that for which hints are merged: each container by itself, or the pod as a whole.
//   - An option of a policy changes its order of sets of nodes, see [PolicyOptions].
//
// # Policies
//
// The merged hint is the intersection of one hint of each resource. It is preferred if each of these is, and all have
// the same nodes.
//
//   - none (a nil [Policy]): no hints; providers allocate anywhere.
//   - best-effort: the best hint, preferred or not.
//   - restricted: pods whose best hint is not preferred are refused.
//   - single-numa-node: pods that do not fit on one node are refused.
//
// Of preferred hints, that with the fewest nodes is the best; of as many, the lowest nodes, or with the option
// prefer-closest-numa-nodes the nearest ones. Of the others, that whose number of nodes is closest to what the largest
// resource needs.
//
// # Walk through
//
// A [Manager] is a [lifecycle.Admitter]. Admit asks for hints, merges them and calls Provider.Allocate, one container
// after the other, first the init containers. With the scope pod and a policy, it calls Provider.AllocatePod before: a
// provider that gives the pod its resources as a whole is not called for its containers. If a provider refuses, all
// providers take back what they gave the pod in this call. A pod is refused with [ReasonAffinity] and the nodes on
// which it can have each resource, or with the reason of the provider.
//
// # Guarantees
//
// Merging is a pure function of the hints. Its result does not depend on their order, and it costs at most the product
// of the numbers of nodes' sets of two resources, not of all. An agent that is restarted admits its pods again:
// providers keep what a container has, and their hints are those of it. A pod whose containers hold all that they
// request is admitted with any policy, so that a change of the policy, its options or its scope ends no pod; kubelet
// refuses such a pod. With the scope pod, a pod that needs resources as a whole and holds nothing is a new one. A
// policy or a provider of one's own is tested without an agent, see the example and package fake.
package topology
