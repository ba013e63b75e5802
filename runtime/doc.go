// Package runtime is the vocabulary that every other package of kubeletkit
// speaks: what a pod, a sandbox and a container are as a container runtime
// sees them, the small contracts that a runtime fulfils, and the [Cache] of
// pod statuses.
//
// # Vocabulary
//
//   - A pod, desired, is a [k8s.io/api/core/v1.Pod]. A [Pod] of this package is
//     the same pod as the runtime lists it: IDs and states, cheap to get.
//     A [PodStatus] is the pod as the runtime describes it when asked in
//     detail: exit codes, times, restart counts, addresses.
//   - A sandbox is what a pod's containers share, at least their network. When
//     it dies it is made again with its attempt number raised.
//   - A container of the spec may have many instances over time, one running
//     at most; each has a [ContainerID] of its own. Lists hold the newest first.
//   - A sidecar is an init container whose own restart policy is Always.
//
// # Contracts
//
// A runtime is anything that fulfils [Runtime], which is composed of contracts
// of one or two methods: [Lister], [Inspector], [Syncer], [Killer], [Execer],
// [Remover] and [Checker]. A part that needs one of them should ask for that
// one only. Implementations must be safe for concurrent use, must return soon
// after their context ends, and must treat the values that they are handed as
// read-only; the values they return are read-only for the caller too, since
// they are shared. [EventSource] is an optional contract: a runtime that tells what
// happens in it as it happens.
//
// # Order
//
// Nothing in kubeletkit compares wall clocks to learn which of two
// observations is newer. The [Cache] numbers every read with a [Mark] drawn
// when the read begins; a status whose mark is greater than the mark drawn
// after a change is certain to show that change.
package runtime
