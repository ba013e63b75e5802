// Package podconfig says what should run on a node. It makes one ordered stream
// of changes of what any number of sources want, turns manifests into pods, and
// holds the desired state.
//
// # Vocabulary
//
//   - A [Source] names pods: all that it wants, each time something changes.
//   - A [Change] is one step of the stream: an [Op] and the pods that it is about.
//   - A batch is a run of changes that leads from what the reader was told to what
//     the sources want now, ordered by Op.
//   - A full name is namespace and name. At most one pod of a full name is in the
//     stream, whatever the sources say.
//   - A static pod comes from another source than an API server. Its mirror pod,
//     if there is one, is the copy that the API server has of it.
//
// # A walk through
//
// A source of manifests hands the bytes that it finds to [Load], which decodes
// them strictly, makes static pods of them ([Normalize]) and judges them
// ([Validate]); every error names the field. The source gives the good pods to the
// [Mux] that runs it. The Mux keeps the newest snapshot of each source, decides
// who gets a full name that two of them want, compares the outcome with what its
// reader was told, and offers the difference. The reader applies it to a
// [Manager] and acts.
//
// An embedder with a control plane of its own implements Source in a few lines;
// pods that did not pass through Load should pass through [Normalize] or at least
// [SetDefaults].
//
// # Guarantees of the stream
//
//   - Applied in order, the changes that a reader took give exactly what the
//     sources wanted at some moment, the latest one as soon as the reader has taken
//     all. A slow reader misses intermediate states, never the last one, and holds
//     up no source.
//   - A UID is Added before, and Removed after, anything else is said of it, and
//     never belongs to two full names at once.
//   - Two sources that want the same full name or UID: who had it first keeps it,
//     the other pod is reported once as a [Rejection] and takes over when the first
//     goes away. Within one source the first in the snapshot wins.
//   - [Mux.AllSeen] turns true when every source was heard and the reader has taken
//     all that came of it. Until then the absence of a pod means nothing, and
//     nothing of it may be cleaned up.
//   - A source that fails is run again; the pods that it named stay meanwhile.
//
// Pods in changes carry the annotations kubernetes.io/config.source, the name of
// the source, and kubernetes.io/config.seen, when the source first named that UID;
// they are shared and must not be changed.
package podconfig
