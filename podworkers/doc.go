// Package podworkers drives each pod through its life: it decides when a pod is
// synced, terminated and taken down, and has a [PodSyncer] do it, in one
// goroutine for each pod that has work.
//
// # Vocabulary
//
//   - An incarnation is the life of one pod under one UID. A UID may be used
//     again, as by a static pod that has its UID in its manifest; then the
//     incarnations follow each other.
//   - A pod is syncing while it is to run, terminating while it is being
//     stopped, terminated when nothing of it runs any more, and finished when
//     what it needed has been taken down too. There is no way back.
//   - A kill is an update that ends the pod. A pod also ends when it is deleted
//     in the API, when it comes in phase Failed or Succeeded, when a sync says
//     that it has ended by itself, and when [Workers.SyncKnownPods] does not
//     name it.
//   - An orphan is a pod that only the runtime knows. It can only be killed.
//   - The full name, "<name>_<namespace>", is what static pods are told apart by.
//
// # A walk through
//
// An [Update] makes the pod's worker call [PodSyncer.SyncPod] with a status that
// was read after the last call that changed something or failed. If the call
// has changed something, it is made again at once; else after the time that it
// asked for, after the resync interval, or when the next update comes. Updates
// that come during a call are merged into one that is handled after it.
//
// When the pod is to end, the call under way is cancelled, and
// [PodSyncer.SyncTerminatingPod] is called until it succeeds, then
// [PodSyncer.SyncTerminatedPod] until it does. The record of the finished pod
// stays until SyncKnownPods is called without it, so that a pod which has ended is
// not started again by a late update.
//
// A pod that is killed before its first SyncPod is not terminated if the runtime
// has nothing of it, unless the kill has a Status to report. An orphan is
// forgotten as soon as it has ended.
//
// # Guarantees
//
//   - At most one call for a UID is under way, and the phase of an incarnation
//     never goes back.
//   - The latest pod counts. A kill is never lost, never taken back, and a later
//     one can only shorten the grace period; if that would let the containers end
//     sooner, the call under way is cancelled and made again with it.
//   - An incarnation starts when the one before it under its UID has finished, by
//     itself and at once: the Create that came meanwhile is kept, and a kill that
//     comes after it drops it. A pod of which only a kill was heard while an orphan
//     of its UID was ending is terminated after that.
//   - A static pod starts when no other of its full name is syncing, terminating or
//     terminated but unfinished; those that wait start in the order in which they
//     came. One that is killed while it waits never starts.
//   - A failed call is made again after a back-off that doubles from
//     Options.BackoffBase to Options.BackoffPeriod. An update that changes something
//     or kills cuts it short; a Sync, which the failing call may have caused itself,
//     does not bring the next call nearer than BackoffBase. A SyncPod that finds
//     something to change time after time is slowed down from 100 ms to
//     BackoffPeriod.
//   - A panic of the syncer is a failed call of one pod.
//   - [Workers.UpdatePod] never blocks. When Run ends, no call is under way; pods
//     go on running. Done functions of kills that were not completed are not called.
//
// # Inside
//
// The thinking is in values without goroutines: a machine for each pod, whose
// transition is a pure function, and a book of all machines, which keeps the order
// between those of the same full name. Workers is the shell that makes the calls.
// An idle pod has no goroutine, and one timer for its resync.
package podworkers
