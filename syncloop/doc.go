// Package syncloop is the loop at the heart of a node agent: it waits for
// whatever may concern a pod and hands it to a [SyncHandler].
//
// # The loop
//
// [Loop] selects over five inputs: changes of the desired state (podconfig),
// changes in the runtime (pleg), probe results, a sync tick (1 s) and a
// housekeeping tick (2 s), which comes earlier when pods have ended (250 ms after
// [Loop.PodEnded]). It does no work of its own on a pod and never blocks
// on one: a handler passes the pod to its worker and returns.
//
// While the runtime does not answer, or the PLEG is unhealthy, the loop rests:
// it takes nothing from its inputs, which keep what they have (each coalesces by
// pod), and looks again after 100 ms, then after twice as long up to 5 s. A
// runtime that only lacks its pod network keeps the loop going, since pods with
// the host's network can run.
//
// # The default handler
//
// [Handler] keeps the pod manager, admits pods, and turns each change into an
// update for the pod's worker. Its HandlePodCleanups is kubelet's: it forgets
// workers of pods that are gone, restarts what must be started again, stops
// pods that only the runtime knows, prunes statuses and probes, and removes the
// directories of gone pods. It is not called before every source has been
// seen, since until then it is not known what is wanted on the node.
//
// One kind of orphan does not wait for that: a pod that an earlier agent ran under
// the full name of one that is added now. It is stopped first, and the new
// one's worker waits for its end. What else ran before is left alone, since a
// source that is yet to deliver may want it.
//
// Pods that are restored from the disk after a reboot are admitted and run as new
// ones are, but as their source has not been heard, nothing is cleaned up on their
// account. A [Checkpoint] is told which pods to keep for that.
//
// # Guarantees
//
// One goroutine calls the handler, so handlers need no locks against each other.
// Run joins what it started. [Loop.LastIteration] is when the loop last went
// round, for health checks.
package syncloop
