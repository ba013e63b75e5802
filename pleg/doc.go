// Package pleg, the pod lifecycle event generator, tells what changed in the
// container runtime: which containers and sandboxes started, died or were
// removed, whoever did it.
//
// # Vocabulary
//
//   - A relist is one list call over everything that the runtime holds, compared
//     with the list before it. [Generic] lives on relists alone.
//   - An event is a difference between two lists: a container or sandbox that is
//     in another state than before. [Event] has the ID and no state: the state
//     is in the cache.
//   - An inspection reads the status of one changed pod into the [Cache].
//   - A mark is a point in the order of reads that the cache keeps.
//   - A pod is dirty from when its events may be read until the reader takes them.
//
// # Use
//
// Build a generator, call Run in a goroutine of your own, and range over Watch in
// another. One reader is meant: several would share the events among them. The
// first relist reports everything that the runtime holds, so a reader that starts
// with nothing learns of all pods.
//
// # Guarantees
//
//   - When the reader gets the events of a pod, the cache holds a status of that
//     pod which was read after those events had happened; or no status, if the pod
//     is gone.
//   - Nothing is dropped. Between generator and reader stands a set of dirty pods,
//     not a queue of events: while a pod waits for the reader, new events of it are
//     merged into what is waiting. Its size is bounded by the pods and their
//     distinct events, not by time.
//   - Nothing is lost when an inspection fails: the events of that pod are kept, and
//     the inspection is tried again after the next relist.
//   - A pod whose inspection hangs delays neither other pods nor the next relist,
//     and does not touch health, which is the progress of the list call.
//   - An exit that a relist could see is reported at least once, even if the
//     container is gone again at the next relist.
//   - What others read into the cache is compared with the next list, also if a
//     later read has replaced it. So a state that passed between two relists, and
//     that somebody has seen, stays neither in the cache nor with the reader: the
//     pod is read again and its reader told.
//
// What comes and goes between two relists, leaves no trace in the runtime and was
// read by nobody, is not seen; dead containers must therefore be left lying for
// some relists.
package pleg
