// Package eviction defends a node that runs out of memory, disk or processes: it evicts pods, one after the other,
// until enough is available.
//
// # Vocabulary
//
// A [Signal] is an amount that is available, such as memory.available. A [Threshold] is a limit of a signal: hard, or
// soft with a grace period. A [Reading] is a signal as it was read. A condition, such as MemoryPressure, is shown in
// the node object while a threshold is met, and for a while after it. Names, defaults and messages are kubelet's.
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
// # The manager
//
// [Manager] is a component of an agent. It reads a [Sensor], calls Decide, measures pods by a [Meter] and acts through
// its [lifecycle.Node]:
//
//	sensor, err := eviction.NewMachine(eviction.MachineOptions{RootDir: rootDir})
//	meter, err := eviction.NewUsages(rt, eviction.UsagesOptions{…})
//	manager, err := eviction.New(sensor, meter, eviction.Options{Thresholds: thresholds})
//	…
//	opts.Join = append(opts.Join, manager) // it refuses pods, and runs with the agent
//
// Signals are read each 10 s, each second while a threshold could be met by then, and faster while less and less is
// available. [Machine] is also woken by the kernel: by pressure stall information, by the events of the cgroup of all
// pods, and on version 1 of cgroups by its notifications about usage. Then a pod is evicted within 100 ms. Where the
// kernel has none of these, there is one line in the log.
//
// What was evicted, for which threshold and reading, and what that has freed, is in the history of the pod
// ([runtime.KindEvict]), in the log, and in events about the pod and the node.
//
// # Guarantees
//
//   - A pod is evicted only if two readings are below a threshold, and the second one was made after all pods were
//     measured. Pressure stall information wakes nothing but a reading.
//   - There is one victim at a time. The next one needs a reading that was made after the end of the last one, or after
//     its time to end: one and a half of its grace period, at least 10 s, and 30 s for the clean-up.
//   - No pod is evicted while the end of pods that end anyway is enough, for at most 10 s.
//   - Static pods (see [Rules].EvictStatic), mirror pods, pods of the priority of system-cluster-critical or higher,
//     and pods that use nothing of the resource are not evicted.
//   - A pod that uses less than a thousandth of what is missing is evicted only when all pods that may be evicted use
//     so little. Then the first one by rank is.
//   - Times are differences of the monotonic clock.
//
// # Differences from kubelet
//
//   - kubelet decides by one reading, which is up to 10 s old for memory and 70 s for disks.
//   - A pod whose usage is unknown comes last. kubelet evicts it first.
//   - Pods that use nothing of the resource stay, and pods that use less than a thousandth of what is missing come
//     last. kubelet evicts them by rank: before others if they exceed their requests or have a lower priority.
//   - Inodes have no request. kubelet subtracts the request of ephemeral-storage in bytes from their number.
//   - If no pod can be evicted for one resource, others are still defended.
package eviction
