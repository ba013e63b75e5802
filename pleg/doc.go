// Package pleg is the pod lifecycle event generator. It reports which containers and
// sandboxes of a container runtime have started, died or been removed, whatever the
// cause.
//
// # Vocabulary
//
//   - A view of a pod is the set of its containers and sandboxes with their states, as a
//     list or a status shows them.
//   - A relist lists all pods of the runtime and compares the list with the views before
//     it. [Generic] uses relists only.
//   - A hint is an event of the runtime's event stream. It means that a pod may have changed.
//     [Evented] uses hints, and relists rarely, as a safety net.
//   - An inspection reads the status of one pod into the [runtime.StatusCache]. A pod is inspected after a
//     relist that found it changed, and after a hint about it.
//   - An event is a difference between two views of a pod: a container or a sandbox has
//     another state than before. [Event] has the ID. The state is in the cache.
//   - A mark is a point in the order of reads that the cache keeps. Marks alone decide which
//     of two views is newer. Clocks are not compared.
//   - A pod is pending from the time when its events are ready until the reader takes them.
//
// # Use
//
// Build a generator, call Run in one goroutine, and range over Watch in another. Use only
// one reader: each event is delivered to one reader. The first relist reports all
// containers and sandboxes of the runtime, so a reader needs no list of its own.
//
// # Guarantees
//
//   - When the reader receives the events of a pod, the cache holds a status of the pod
//     that was read after the events happened, or no status if the pod is gone.
//   - Nothing is dropped. Events wait for the reader in a set by pod: later events of a
//     pending pod are merged with the waiting ones. The number of pods and of their distinct
//     events bounds the size of the set.
//   - Nothing is lost when an inspection fails. The events of the pod wait, and the
//     inspection is tried again after [Options].RelistPeriod.
//   - A pod whose inspection hangs delays neither other pods nor the next relist. It does
//     not affect Healthy, which reports the progress of the list call.
//   - Each exit that a list or an inspection shows is reported, also if the next one does not
//     show the container any more. It is reported only once, whether a relist or a hint came
//     first. There is one exception: an exit may be reported twice if another user of the
//     cache began a read before the exit, and the read ended after the reader received the
//     event.
//   - A status that another user has read into the cache is compared with the next list
//     and with the next inspection of the pod, also if a later read has replaced it. So
//     the reader receives events for the beginning and the end of a state that only
//     another user has read.
//
// A container that starts and disappears between two reads is not reported. So dead
// containers must be kept for some relists, or until a hint about them was handled.
//
// # Hints
//
// A hint never becomes state. So a lost, repeated, late or reordered hint costs at most one
// read of the pod. If the view of the pod already shows the change, it costs none.
//
// Handling a hint never blocks the runtime. All hints about a pod whose inspection is
// requested or under way lead to one further inspection. Nothing is kept about pods that
// turn out to be gone. A hint that names no pod is matched by the ID of its container or
// sandbox. If no view has the ID, a relist is requested, at most once in RelistPeriod. If
// an inspection after a hint shows that nothing of the pod runs any more, it is repeated
// once after RelistPeriod, because containerd sends its last event of a pod before it
// removes the sandbox.
//
// # How often Evented relists
//
// The period depends on what the event stream has reported so far:
//
//   - The runtime has no stream: always RelistPeriod.
//   - The stream is broken, or was not opened yet: one relist at once, and then
//     RelistPeriod. The stream is opened again after a pause of 100 ms, which doubles up to
//     5 s and has some jitter.
//   - The stream is established: the runtime has announced it, or the first event has
//     come. There is one relist that begins after that, for what happened before, and
//     then SafetyPeriod.
//   - The stream was opened, and nothing has come from it. On a quiet node that is normal,
//     since containerd announces nothing before the first event. The period doubles with
//     each relist that finds no change without a hint.
//   - The stream has missed something: a relist found a pod changed, and no hint about it
//     came within a second. Each such pod is logged and counted. The period is RelistPeriod
//     until a hint has led to a change, and then grows by doubling. If the stream has
//     delivered nothing at all since the relist before, or has missed changes in more than
//     five relists, it is closed and opened again.
//
// If the runtime hangs, a list call does not return. So there is a relist when the stream
// breaks, and when inspections fail or do not end. Healthy returns an error when the list
// call is still under way after RelistThreshold.
package pleg
