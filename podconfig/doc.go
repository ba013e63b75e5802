// Package podconfig merges any number of sources of pods into one ordered stream of
// changes.
//
// # Vocabulary
//
//   - A [Source] delivers pods to a [Sink]: a snapshot, which is the full list, or a
//     [Delta], which is a change of single pods.
//   - A snapshot is all that a source wants at one moment. A source has been seen
//     when the reader knows all that came of its first one.
//   - A [Change] is one step of the stream: an [Op] and the pods that it is about.
//   - A batch is a run of changes that leads from what the reader was told to what
//     the sources want now, ordered by Op.
//   - A full name is namespace and name. At most one pod of a full name is in the
//     stream, whatever the sources say.
//   - A pod is held back while another has its full name or its UID.
//   - A restored pod is one that an earlier life of the agent took on; it counts
//     until its source is heard.
//   - A static pod comes from another source than an API server. Its mirror pod,
//     if there is one, is the copy that the API server has of it.
//
// # A walk through
//
// A source of manifests reads pods with package podconfig/manifest, and gives the
// good ones to the [Mux] that runs it. The Mux keeps what each source wants, decides who gets a full
// name that two of them want, compares the outcome with what its reader was told,
// and offers the difference. The reader applies it to a pod manager, such as that of
// package podmanager, and acts.
//
// After a reboot no source may be in reach. Then [Options] has the pods that the
// earlier life kept on disk, as package podconfig/checkpoint does, restored before
// any source is run.
//
// An embedder with a control plane of its own sends lists of pods to a [NewChannel],
// names pods that never change in a [NewStatic], or implements Source in a few
// lines. Pods that were not read by manifest.Load should pass through
// manifest.Normalize or at least manifest.SetDefaults. Sources may come and go while the Mux runs:
// [Mux.Add], [Mux.Remove].
//
// # Guarantees of the stream
//
//   - Applied in order, the changes that a reader took give exactly what the
//     sources wanted at some moment, the latest one as soon as the reader has taken
//     all. A slow reader misses intermediate states, never the last one. It holds up
//     no source, and costs no more memory than the pods that it knows and those that
//     are wanted.
//   - A UID is Added before, and Removed after, anything else is said of it, and
//     never belongs to two full names at once.
//   - Two pods that want the same full name or UID: who had it first keeps it, the
//     other is reported once as a [Rejection] and takes over when the first goes
//     away. Of new ones the first source's wins, and within a source the first. A
//     source that gives a pod another UID keeps its name.
//   - [Mux.AllSeen] is true when every source has been seen. Until then the absence
//     of a pod means nothing, and nothing of it may be cleaned up. A source that is
//     added makes it false again; restored pods and deltas without a snapshot never
//     make it true.
//   - A restored pod holds its name and UID until its source is heard. Then that one
//     rules: what it does not name is removed, what it changed is updated, and of the
//     same nothing is said.
//   - A source that fails is run again; the pods that it named stay meanwhile. Those
//     of one that is removed do not.
//
// Pods in changes carry the annotations kubernetes.io/config.source, the name of
// the source, and kubernetes.io/config.seen, when the source first named that UID;
// they are shared and must not be changed.
package podconfig
