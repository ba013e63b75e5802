// Package translate turns pods into the configurations that a CRI runtime
// takes: a v1.Pod into a PodSandboxConfig, a container of it into a
// ContainerConfig.
//
// It is a function of values. It opens no file and no socket: what it needs to
// know of the machine comes in as a [Node] and a [runtime.Host], what stands on
// disk as paths in a [Container], and sub-paths go through a callback.
//
// # Vocabulary
//
//   - [Node] is what holds for all pods: facts of the machine, settings of the agent.
//   - [Pod] and [Container] are the inputs of one translation.
//   - [Extras] is what others, such as device plugins, add to a container.
//   - A [Warning] is something that a pod asked for and does not get, though it runs.
//
// # Guarantees
//
// The output is what kubelet 1.36 would send, so that either takes over the
// other's pods, with these differences, all on purpose:
//
//   - The order of environment variables and of DNS options is that of their
//     declaration, where kubelet's is random.
//   - Service environment variables are never set: they need a cluster.
//   - lifecycle.stopSignal is honoured; in kubelet a feature gate still guards it.
//   - An unknown type of seccomp profile is an error, where kubelet takes it for
//     Unconfined.
//   - resourceFieldRef gives the node's allocatable amount for the missing limit of any
//     container; kubelet forgets the init containers.
//   - Namespace options are set also for a pod without a security context, and
//     mounts of propagation Bidirectional are refused outside privileged containers;
//     kubelet leaves both to the API server.
//
// Not translated yet: image volumes, block devices (volumeDevices), fileKeyRef and
// user namespaces without a mapping, each refused with an error that names it;
// memory.min, memory.low and memory.high (kubelet's MemoryQoS, alpha) and limited swap,
// which are not set; anything of Windows.
//
// Inputs are only read. Outputs share no memory with them, except for what
// stands in [Extras] and in [Pod.Users]. All functions are safe for concurrent use.
//
// # Errors
//
// An error of [SandboxConfig] or [ContainerConfig] means that the spec cannot be
// carried out as it is; in a container's status it is a
// CreateContainerConfigError. The texts are made to be shown to the owner of the
// pod: they name what is wrong in the spec, and neither the pod nor paths of the host
// outside of it.
package translate
