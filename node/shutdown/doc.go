// Package shutdown ends the pods of a node in the order of their priorities, as kubelet does at a graceful
// shutdown of the machine (KEP-2000, KEP-2712).
//
// # Vocabulary
//
//   - A [Period] is the time that the pods of a range of priorities have to end. The range begins with its
//     priority and ends before that of the next period.
//   - A [Group] has the pods of a period. The groups end one after the other, the lowest priority first, so that
//     drivers of volumes, the network and DNS serve the other pods until these have ended.
//   - A [lifecycle.Node] is the agent: it has the pods, and ends them.
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
// # Shutdown of the machine
//
// A [Manager] holds an inhibitor lock of systemd-logind, so that the machine waits before it shuts down. When a
// shutdown begins, the node is not ready any more, new pods are refused, and the pods end in their groups; then the
// lock is released, and the machine goes on. If the machine waits for less time than the periods need, the manager
// raises InhibitDelayMaxSec in kubelet's file, /etc/systemd/logind.conf.d/99-kubelet.conf. If it cannot, it shortens
// the periods in proportion. After a shutdown that is cancelled, pods that were not told to end go on, and new ones are
// admitted.
//
//	manager, err := shutdown.New(periods, logind.New(logind.Options{}), shutdown.Options{StateDir: root})
//	agent, err := kubeletkit.New(kubeletkit.Options{Join: []lifecycle.Component{manager}, …})
//
// [Logind] and [Session] are what a manager needs of logind. Package logind below this one has the real one; it is the
// only one that links D-Bus. Without logind the manager logs that once, and tries again.
//
// # Guarantees
//
//   - Periods and groups are values; their functions are pure.
//   - End returns not later than the sum of the periods, or when its context ends. Pods that were not told to end
//     until then go on.
//   - A pod that appears meanwhile ends with its group, or if that has passed, with the next one.
//   - A manager holds one lock, also while the connection to logind is lost and when logind is restarted, except
//     when the pods have ended before a shutdown. Signals that were missed are made up for when it connects again.
//   - The machine shuts down if pods do not end, or a panic keeps them from it.
package shutdown
