// Package translate converts pods to the configurations of a CRI runtime: a v1.Pod to a
// PodSandboxConfig, and its containers to ContainerConfigs.
//
// Its functions depend on their arguments alone and open no file and no socket. Facts of
// the machine are in a [Node] and a [runtime.Host], files in the paths of a [Container],
// and a callback prepares sub-paths.
//
// # Vocabulary
//
//   - [Node] applies to all pods: facts of the machine, settings of the agent.
//   - [Pod] and [Container] are the inputs of one conversion.
//   - Edits are changes by other components, such as device plugins.
//   - A [Warning] is about something that a pod requests and does not get, though it runs.
//
// # Guarantees
//
// The output is the same as that of kubelet 1.37, so that this agent and a kubelet can take
// over the pods of each other, with these intended differences:
//
//   - Environment variables and DNS options are in the order of their declaration; in
//     kubelet their order is random.
//   - Environment variables of other components, such as those of services, come first, in the order of
//     [Container].Edits.
//   - lifecycle.stopSignal is used; in kubelet it needs a feature gate.
//   - An unknown type of seccomp profile is an error; kubelet uses Unconfined.
//   - resourceFieldRef falls back to the node's allocatable amount for the missing limit
//     of any container; kubelet omits init containers.
//   - Namespace options are also set for a pod without a security context, and mounts
//     with propagation Bidirectional are refused outside privileged containers; kubelet
//     leaves both to the API server.
//
// Not supported: pods with hostUsers: false without a user namespace,
// which are errors; Windows. memory.min, memory.low and memory.high (kubelet's MemoryQoS) and the limit of swap
// are not made from the spec here: they come in the Edits of a [Container], from node/cgroup and node/swap.
//
// Inputs are not modified. Outputs share no memory with them, except for the contents of
// the Edits of [Container] and [Pod]. All functions are safe for concurrent use.
//
// # Errors
//
// An error of [SandboxConfig] or [ContainerConfig] means that the spec cannot be used as
// it is; the container's waiting reason is CreateContainerConfigError. The texts are for
// the owner of the pod: they name the problem in the spec, and contain neither the pod's
// name nor paths of the host that are not in the spec.
package translate
