// Package pleg is the pod lifecycle event generator. It reports which containers and
// sandboxes of a container runtime have started, died or been removed, whatever the
// cause.
//
// # Vocabulary
//
//   - A relist lists all pods of the runtime and compares the list with what was known.
//     [Generic] uses relists only.
//   - A hint is an event of the runtime's event stream. It says that something may have
//     happened to a pod. [Evented] uses hints, and relists rarely, as a safety net.
//   - An inspection reads the status of one pod into the [Cache]. A pod is inspected when a
//     relist has found it changed, or when a hint is about it.
//   - An event is a difference between two views of a pod: a container or a sandbox has
//     another state than before. [Event] has the ID. The state is in the cache.
//   - A mark is a point in the order of reads that the cache keeps. Marks alone decide which
//     of two views is newer. Clocks are not compared.
//   - A pod is pending from the time when its events are ready until the reader takes them.
//
// # Use
//
// Build a generator, call Run in one goroutine, and range over Watch in another. Use one
// reader: several would share the events among them. The first relist reports everything
// that the runtime holds, so a reader needs no other source to begin with.
//
// # Guarantees
//
//   - When the reader receives the events of a pod, the cache holds a status of the pod
//     that was read after the events happened, or no status if the pod is gone.
//   - Nothing is dropped. Events wait for the reader in a set by pod: later events of a
//     pending pod are merged with those that wait. The size of the set is bounded by the
//     pods and their distinct events, not by time.
//   - Nothing is lost when an inspection fails. The events of the pod wait, and the
//     inspection is tried again after [Options].RelistPeriod.
//   - A pod whose inspection hangs delays neither other pods nor the next relist. It does
//     not affect Healthy, which reports the progress of the list call.
//   - Each exit that a list or an inspection shows is reported at least once, also if the
//     container is gone at the next one. It is reported once only, whether a relist or a
//     hint was first, except if a read of another user of the cache, which began before the
//     exit, ends after the reader has received it.
//   - What other users read into the cache is compared with the next list, and with the
//     next inspection of the pod, also if a later read has replaced it. A state that
//     passed between two of these and that a user has read does not stay in the cache, and
//     the reader receives events for both its beginning and its end.
//
// A container that starts and disappears between two reads is not reported. So dead
// containers must be kept for some relists, or until a hint about them was handled.
//
// # Hints
//
// A hint never becomes state, so lost, repeated, late and reordered ones cost at most one
// read of the pod. A hint that says what is known already costs none.
//
// Handling a hint never blocks the runtime. All hints about a pod whose inspection is
// requested or under way lead to one further inspection. Nothing is kept about pods that
// turn out to be gone. A hint that names no pod is matched by the ID of its container or
// sandbox. If no known pod has the ID, a relist has to find what the hint was about, at
// most once a second. A pod of which nothing runs any more is inspected again a second
// after the last hint about it, because containerd sends that hint before the sandbox is
// removed.
//
// # How often Evented relists
//
// The period follows from what the event stream has proven to be worth:
//
//   - The runtime has no stream: RelistPeriod, for good.
//   - The stream is broken, or was not opened yet: one relist at once, and then
//     RelistPeriod. The stream is opened again after a pause of 100 ms, which doubles up to
//     5 s and has some jitter.
//   - The stream is established, which the runtime has announced or the first event has
//     shown: one relist that begins after that, for what happened before, and then
//     SafetyPeriod.
//   - The stream was opened, and nothing has come from it. On a quiet node that is normal,
//     since containerd announces nothing before the first event. The period doubles with
//     each relist that finds nothing the stream had not reported.
//   - The stream has missed something: a relist found a pod changed, and no hint about it
//     came within a second. Each such pod is logged and counted. The period is RelistPeriod
//     until a hint has led to a change, and then grows by doubling. A stream that has
//     delivered nothing at all since the relist before, or whose misses exceed MaxMisses,
//     is closed and opened again.
//
// A runtime that hangs is noticed by a list call that does not return. A relist follows a
// broken stream, and inspections that fail or do not end. Healthy returns an error when
// that list call is still under way after RelistThreshold.
package pleg
