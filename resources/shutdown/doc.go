// Package shutdown ends the pods of a node in the order of their priorities, as kubelet does at a graceful
// shutdown of the machine (KEP-2000, KEP-2712).
//
// # Vocabulary
//
//   - A [Period] is the time that the pods of a range of priorities have to end. The range begins with its
//     priority and ends before that of the next period.
//   - A [Group] has the pods of a period. The groups end one after the other, the lowest priority first, so that
//     drivers of volumes, the network and DNS serve the other pods until these have ended.
//   - A [Node] is the agent: it has the pods, and ends them.
//
// # Order
//
// [End] requests the end of all pods of a group, and waits until they have ended and their volumes are taken
// down, but no longer than the period. Then it goes on with the next group. A group without pods takes no time. A
// pod has the shorter of its own grace period and that of its group.
//
// [Classes] makes the periods of kubelet's shutdownGracePeriod and shutdownGracePeriodCriticalPods,
// [ByPriority] those of shutdownGracePeriodByPodPriority, and [Unlimited] has the same order without limits.
//
//	err := agent.DrainByPriority(ctx, shutdown.Classes(30*time.Second, 10*time.Second))
//
// # Guarantees
//
//   - Periods and groups are values; their functions are pure.
//   - End returns not later than the sum of the periods, or when its context ends. Pods that were not told to end
//     until then go on.
//   - A pod that appears meanwhile ends with its group, or if that has passed, with the next one.
package shutdown
