// Package podworkers drives each pod through its life: it decides when a pod is
// synced, terminated and taken down, and calls a [Syncer] for it. [Workers] is
// the interface of this package and [Pool] the default.
//
// # Vocabulary
//
//   - An incarnation is the life of one pod under one UID. A UID may be used again,
//     for example by a static pod that has its UID in its manifest. Then one
//     incarnation follows another.
//   - A pod is syncing while it is to run, terminating while it is being stopped,
//     terminated when nothing of it runs any more, and finished when its resources have been
//     taken down too. An incarnation never goes back.
//   - A kill is an update that ends the pod. A pod also ends when it is deleted in the
//     API, when an update has it in phase Failed or Succeeded, when SyncPod returns that
//     it has ended or has failed for good, and when SyncKnownPods is called without it.
//   - A pod is known while the workers have a record of it.
//   - An orphan is known only from the runtime: it has no spec. It can only be killed.
//   - The full name of a pod is "<name>_<namespace>". It identifies a static pod.
//
// # The life of a pod
//
// After an [Update], the workers call [Syncer.SyncPod] with a status that was read
// after the last call that changed something or failed. If SyncPod has changed
// something, it is called again at once. Otherwise it is called again after the time
// that it has returned, after the resync interval, or after the next update. Updates
// that come during a call are merged into one, which is handled after the call. Resyncs
// of a pod at rest become rarer, see [Result].
//
// When the pod is to end, the SyncPod under way is cancelled. Then
// [Syncer.SyncTerminatingPod] is called until it succeeds, and after it
// [Syncer.SyncTerminatedPod] until it succeeds. The record of a finished pod is
// kept until SyncKnownPods is called without it, so that a late update does not start
// the pod again.
//
// A pod that is killed before its first SyncPod is not terminated if the runtime has
// nothing of it, unless the kill has a Status to report. An orphan is forgotten as
// soon as it has ended.
//
// # Failure for good
//
// If the error of a SyncPod wraps a [*runtime.TerminalError], the pod has failed for
// good. A wrapper around the Syncer can deny a pod this way, and so can a runtime.
// The pod is terminated with its own grace period, and [Termination] has a Status that
// sets phase Failed, the reason and the message. [State] has the error, and
// Options.Event receives it. Only a new incarnation can run again. If the pod is
// killed, too, the reason that came first stays: a failure does not replace the Status
// of an earlier kill, and a kill does not replace the Status of an earlier failure.
//
// # Guarantees
//
//   - At most one call for a UID is under way. The phase of an incarnation never goes
//     back.
//   - The latest spec counts. A kill is never lost and never undone. A later kill can
//     only shorten the grace period. If the containers would end sooner with the shorter
//     one, the call under way is cancelled and repeated with it.
//   - A Create for a UID that is ending is kept, unless a kill comes after it. The next
//     incarnation starts with it as soon as the one before has finished. If only a kill
//     comes while an orphan of the UID is ending, the pod is terminated after the orphan.
//   - A static pod starts when no other pod of its full name is syncing, terminating or
//     terminated but unfinished. Waiting pods start in the order in which they came. A
//     pod that is killed while it waits never starts.
//   - A failed call is repeated after a back-off, which doubles from
//     [Options.BackoffBase] to [Options.BackoffPeriod]. A Create, a Change and a kill end
//     the back-off. A Sync may be a consequence of the failed call, so it ends the
//     back-off no sooner than BackoffBase after the failure. A SyncPod that changes
//     something each time is repeated after a delay that doubles from 100 ms to
//     BackoffPeriod.
//   - A panic of the Syncer is a failed call of one pod.
//   - No call waits for the [runtime.Observer]. One that blocks loses what it
//     would receive. If it still does at the end of Run, Run waits 3 s for it and returns.
//   - UpdatePod never blocks. When Run returns, no call is under way; pods go on
//     running. Done functions of kills that were not completed are not called.
//
// # Inside
//
// A machine is the state of one pod. It is a value, and its transitions are pure
// functions (machine.go, incarnation.go, termination.go, next_call.go, schedule.go). The
// type machines has the machines of all pods, and the order of static pods of one full
// name (machines.go, fullnames.go). [Pool] makes the calls (pool.go, perform.go). An
// idle pod has no goroutine, and one timer for its resync.
package podworkers
