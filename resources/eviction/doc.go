// Package eviction defends a node that runs out of memory, disk or processes: it evicts pods, one after the other, until
// enough is available.
//
// # Vocabulary
//
// A [Signal] is an amount that is available, such as memory.available. A [Threshold] is a limit of a signal: hard, or soft
// with a grace period. A [Reading] is a signal as it was read. A condition, such as MemoryPressure, is shown in the node object while a threshold
// is met, and for a while after it. Names, defaults and messages are kubelet's.
//
// # The decision
//
// [Decide] is a pure function of a [State], the [Rules] and an [Input]. It returns what to do next:
//
//	Reclaim   remove dead containers and unused images; only for disks
//	Measure   measure the usage of all pods, then read the signals again
//	Evict     end the pod that [Rank] puts first
//	Wait      until the victim has ended, and a reading shows what that has freed
//
// # Guarantees
//
//   - A pod is evicted only if two readings are below a threshold, and the second one was made after all pods were measured.
//     Pressure stall information wakes nothing but a reading.
//   - There is one victim at a time. The next one needs a reading that was made after the end of the last one, or after its
//     time to end: one and a half of its grace period, at least 10 s, and 30 s for the clean-up.
//   - No pod is evicted while the end of pods that end anyway is enough, for at most 10 s.
//   - Static pods, mirror pods, pods of the priority of system-cluster-critical or higher, and pods that use nothing of the resource
//     are not evicted.
//   - Times are differences of the monotonic clock.
//
// # Differences from kubelet
//
//   - kubelet decides by one reading, which is up to 10 s old for memory and 70 s for disks.
//   - A pod whose usage is unknown comes last. kubelet evicts it first.
//   - Inodes have no request. kubelet subtracts the request of ephemeral-storage in bytes from their number.
//   - If no pod can be evicted for one resource, others are still defended.
package eviction
