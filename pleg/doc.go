// Package pleg, the pod lifecycle event generator, tells what changed in the
// container runtime: which containers and sandboxes started, died or were
// removed, whoever did it.
//
// # Vocabulary
//
//   - A relist is one list call over everything that the runtime holds, compared
//     with what was known before. [Generic] lives on relists alone.
//   - A hint is the runtime's word that something happened to a pod. [Evented] lives
//     on hints, and relists rarely, as a safety net.
//   - An inspection reads the status of one pod into the [Cache]. A pod that a relist
//     found changed is inspected, and one that a hint is about.
//   - An event is a difference between two views of a pod, whether lists or
//     statuses: a container or sandbox that is in another state than before.
//     [Event] has the ID and no state: the state is in the cache.
//   - A mark is a point in the order of reads that the cache keeps. It is all that
//     decides which view is newer; no clocks are compared.
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
//     the inspection is tried again after [Options].RelistPeriod.
//   - A pod whose inspection hangs delays neither other pods nor the next relist,
//     and does not touch health, which is the progress of the list call.
//   - An exit that a relist or an inspection could see is reported at least once,
//     even if the container is gone again at the next one; and once only, whether a
//     relist or a hint was first, unless somebody may have read the pod as it was
//     before, and learned of it only after the reader.
//   - What others read into the cache is compared with the next list, and with the
//     next inspection of that pod, also if a later read has replaced it. So a state
//     that passed between two of them, and that somebody has seen, stays neither in
//     the cache nor with the reader, who is told both that it came and that it went.
//
// What comes and goes between two reads, leaves no trace in the runtime and was
// read by nobody, is not seen; dead containers must therefore be left lying for
// some relists, or until a hint about them has been looked into.
//
// # Hints
//
// What an event of the runtime says never becomes state, so that lost, doubled, late
// and replayed ones, and those that overtake each other, cost a read of the pod at
// most; none if what it says is known already.
// A hint never waits for anything, so that a runtime is never held up, and hints
// about a pod that is waiting for its inspection, or under it, are one. Nothing is
// kept of pods that turn out to be gone. A hint that names no pod is matched by the
// ID of its container or sandbox; if nobody knows that either, a relist has to find
// what it was about, once a second at most. A pod of which nothing runs any more is
// looked at once more a second after the last hint about it, since containerd sends
// that before the sandbox is gone.
//
// # Modes of Evented
//
// How often an [Evented] relists follows from what its event stream has proven to
// be worth; it is state of the instance.
//
//   - The runtime has no stream: every RelistPeriod, for good.
//   - The stream is broken, or was not opened yet: one relist at once, and then every
//     RelistPeriod. It is opened anew after a pause of 100 ms, which doubles up to 5 s
//     and has some jitter.
//   - The stream stands, as the runtime has said or an event has shown: one relist
//     that begins after that, for what has happened before, and then every
//     SafetyPeriod.
//   - The stream was opened, and nothing was heard of it. On a quiet node that may be
//     as it should, for containerd says nothing before the first event. The time to
//     the next relist doubles with each that finds nothing the stream had missed.
//   - The stream has missed something: a relist found a pod changed, and no hint
//     about it came within a second. Each such pod is logged and counted. Relists are
//     tight again until a hint has led to a change; then trust grows by doubling. A
//     stream that told nothing at all since the relist before, or whose misses exceed
//     MaxMisses, is treated as broken.
//
// A runtime that hangs is noticed by the relist after the stream has broken, and by
// the relist that follows inspections which fail or do not end; otherwise by the next
// one. Health is bad when that list call is still out after RelistThreshold.
package pleg
