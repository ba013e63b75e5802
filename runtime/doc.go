// Package runtime defines the contract between kubeletkit and a container runtime: the
// interfaces that a runtime implements, the types of their methods, and the [Cache] of pod
// statuses. It imports the Kubernetes API types and nothing of CRI. A runtime can be
// containerd behind runtime/cri, host processes behind runtime/process, a fake, or a program
// of the embedder.
//
// # Vocabulary
//
//   - A pod in the desired state is a [k8s.io/api/core/v1.Pod]. A [Pod] of this
//     package is a pod as the runtime lists it: IDs and states. A [PodStatus] is a
//     pod as the runtime describes it in detail: exit codes, times, restart counts,
//     addresses.
//   - A sandbox holds what the containers of a pod share, at least the network. A pod
//     whose sandbox has died gets a new one, with the next attempt number.
//   - A container of the spec has one instance after the other. At most one of them
//     runs. Each has a [ContainerID] of its own. Lists have the newest first.
//   - A sidecar is an init container whose own restart policy is Always.
//   - A status read is an inspection; a list of all pods is a relist.
//
// # The interfaces
//
// [Runtime] is composed of small interfaces. A component that needs one of them
// takes that one only.
//
//   - [Lister] lists all pods. The PLEG, the garbage collector and the housekeeping of the
//     sync loop call it.
//   - [Inspector] describes one pod. The [Cache] calls it. [ListInspector] makes one of a
//     Lister.
//   - [Execer] runs a command in a container, for probes and users.
//   - [Remover] removes dead containers and sandboxes. The garbage collector calls it.
//   - [Checker] reports whether the runtime is ready. The sync loop calls it.
//   - SyncPod of a Runtime brings one pod closer to its spec, again and again, with a newer
//     status each time, and KillPod stops it. Only pod workers call them.
//   - [EventSource] is optional: it reports changes as they happen. Components find it
//     with [Optional], also on a runtime that is wrapped.
//
// # Duties of an implementation
//
//   - Methods are safe for concurrent use. There is one exception: for one pod,
//     SyncPod and KillPod are not called at the same time.
//   - A method returns soon after its context has ended, with an error that wraps
//     ctx.Err(): [context.Canceled] or [context.DeadlineExceeded]. It may wrap the
//     context's cause as well, but not instead of it. The method does not panic.
//   - Arguments are read-only. Results are shared between callers, so they are
//     read-only as well, and the implementation does not change them later. A status is
//     used after the sandbox in it was removed: it stays as it was read, and calls
//     with it are no misuse.
//   - Pods are identified by UID. Two pods with one name and different UIDs are
//     different pods.
//   - Calls can be repeated: KillPod of a pod that does not run returns nil, and so does the
//     removal of a container or sandbox that is gone.
//   - An error wraps [ErrUnavailable] if the runtime did not answer, and [ErrNotFound]
//     where the method documents it. The other errors have no class.
//   - InspectPod and ListPods agree: at one moment, both show the same sandboxes and
//     containers in the same states.
//
// The package runtimetest is a suite of tests for these duties.
//
// # Order
//
// Nothing in kubeletkit compares clocks to decide which of two observations is
// newer. The [Cache] draws a [Mark] before each read. A status whose mark is greater
// than a mark that was drawn after a change shows that change.
package runtime
