// Package history keeps what happened to each pod and why: the states that were observed, the
// decisions, and their outcomes. It shows why a container was restarted.
//
// # Vocabulary
//
//   - A record ([runtime.Record]) is a state that was observed, a decision, or an outcome. It
//     has values and no time.
//   - An entry ([Entry]) is a record that is kept, with its time.
//   - A repeat is a record that equals an entry of its pod in everything but the source,
//     the attempt, the duration and the time of an exit.
//
// # Use
//
// The parts of an agent have an option Record, a [runtime.RecordFunc], and call it after each
// observation, decision and action. It is the method Record of a [Store]. [Memory] is the
// default Store. A program reads it as values with Entries, and as a stream with Watch.
//
// # Guarantees of a Memory
//
//   - Record takes a lock, does no I/O and starts no goroutine. A pod to which nothing
//     happens costs only its memory.
//   - The history of a pod takes 2 kB at most, whatever happens to the pod. The entries are
//     encoded in one buffer. The oldest entry is dropped first.
//   - The entries of a pod are in the order in which their records came. The last entry is
//     always the last record.
//   - Repeats are merged: an entry stays as it is when it is repeated for the first time,
//     and the repeat becomes a second entry. Further repeats replace the second one, which
//     counts them and moves to the end. So a container that crashes a thousand times has
//     its first crash and its last one in its history, with the number and the times of
//     the crashes in between, and leaves room for what happened before. A repeat of the
//     last entry is counted in this entry.
//   - The history of a pod that is gone is dropped after an hour, or when the pod is not
//     among the last 100 that are gone. An entry is dropped after 7 days. [Options] change
//     these limits.
//   - With a file, the history survives the agent. It is written at most once a second,
//     and only what is new. An agent that is killed loses the last second.
//
// A history may contain names, reasons, paths of fields, errors of the runtime and of probes,
// and the wrong values of an invalid spec. It contains no other values of a spec and no output
// of hooks. The containers of a pod can write a part of it, such as the output of a probe. So
// a program that prints a history must escape control characters.
package history
