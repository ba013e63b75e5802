// Package podconfig merges any number of sources of pods into one ordered stream of
// changes.
//
// # Vocabulary
//
//   - A [Source] delivers pods to a [Sink]: snapshots and deltas.
//   - A snapshot is the full list of the pods of a source at one moment. A [Delta] is a
//     change of single pods since then.
//   - A pod is offered while it is in the latest snapshot of a source, with the deltas
//     since then.
//   - A pod is desired if it is offered and the Mux puts it into the stream. The stream
//     has at most one pod of each UID and of each full name (namespace and name).
//   - A pod is rejected if a source delivers it and it is not desired, or if the source itself
//     cannot deliver it. It is not valid, or another pod has its UID or full name: then it waits
//     until that pod is removed.
//   - The reader receives the stream. A pod is delivered when the reader has received it.
//   - A [Change] is one element of the stream: an operation ([Op]) and its pods.
//   - A batch is a sequence of changes, ordered by operation, that leads from the
//     delivered pods to the desired ones.
//   - A source has been seen when the reader has received all changes that followed from
//     its first snapshot.
//   - A restored pod was desired in an earlier run of the agent. It is desired until its
//     source delivers its first snapshot. A [RestoreDelayer] decides when that begins.
//   - A static pod comes from any source except an API server, which is the source "api".
//
// # Overview
//
// An agent gives its sources to a [Mux], runs it, and reads the changes:
//
//	mux, err := podconfig.New(podconfig.Options{NodeName: "edge-7", Sources: sources})
//	…
//	go mux.Run(ctx)
//	for change := range mux.Changes() {
//		… // apply it, for example to a podmanager.Store
//	}
//
// Packages podconfig/file and podconfig/http have sources that read manifests from a disk and
// from a URL. An embedder with a control plane sends snapshots through [NewChannel], or
// implements [Source] in a few lines and calls Sink.Apply for changes of single pods.
// [MapPods] changes or drops the pods of another source.
// [NewStatic] is a source of pods that never change. Package podconfig/manifest makes pods
// from manifests; other pods need at least a name, a namespace, a UID, a container and its image.
// [Mux.Add] and [Mux.Remove] add and remove sources while the Mux runs.
//
// After a reboot the sources may be unreachable. [Options].Restore returns the pods of
// the earlier run of the agent, for example from package podconfig/checkpoint. The Mux
// delivers them before it runs any source, except those of a [RestoreDelayer].
//
// # Validation
//
// The Mux sets the defaults of each pod on a copy, and validates it, whatever its source is. It does
// this when the pod is new or has changed, not for each delivery. A pod that is not valid is
// rejected: it has an event, it is logged, and it is in [SourceState].Rejected until its source delivers it valid
// or removes it. The other pods of the source are not affected. If the pod was valid before, that
// version stays; a deletion in a version that is not valid counts all the same.
//
//   - A pod of a static source is validated as an API server does it on creation, like manifest.Validate with
//     all references: names, duplicates, images, volumes and so on. A pod without a node gets [Options].NodeName.
//     All its text must be UTF-8, and it must not have more than 15 MiB as JSON. So each pod of the stream can be kept
//     by package podconfig/checkpoint and is accepted again.
//   - A pod of an API server (source "api") was validated there. A newer API server may know more values, so the Mux
//     checks only what the node relies on: names of the pod, its namespace, containers and volumes that can be
//     names of files, a UID that can be one, no container or volume of the same name, and paths of volumes, of subPath
//     and of profiles that do not lead out of their directories. A volume of an unknown type stays as it is.
//   - A restored pod is validated as a pod of its source.
//
// # Guarantees of the stream
//
//   - At the end of each batch, the changes that the reader has received, applied in
//     order, give a set of pods that was desired at some moment. When the reader has
//     received all changes, it is the set of the pods that are desired now. A slow reader
//     misses intermediate states, but never the last one. It does not block the sources. The
//     memory of the Mux is bounded by the pods that are offered and delivered, and about
//     a thousand more in deliveries that wait to be merged.
//   - The first change of a UID is an Add or a Restore, the last one a Remove. Between
//     the two its full name does not change.
//   - Each delivery of a source, a snapshot or a delta, is one atomic step. Within it a
//     full name may pass from one UID to another. A pod of a delta takes its full name from
//     any other pod of its source.
//   - Of two pods with the same UID or full name, the one that was desired first stays
//     desired until its source removes it. The other waits, and is reported once, in the log
//     and as an event. When the UID or name becomes free, the next desired pod is a waiting pod of
//     the source that has released it. If there is none, it is a pod of the source that
//     was registered first; within a source, the pod that was offered first.
//   - [Mux.SourcesReady] is true when all sources have been seen. Until then a pod that is not
//     in the stream may still come, so nothing may be cleaned up because it is missing.
//     Restored pods and deltas without a snapshot do not make a source seen.
//   - A restored pod keeps its UID and full name until its source delivers a snapshot, or a
//     delta that takes them. With the snapshot it is removed if the snapshot does not have it,
//     and updated if it differs. If it is the same, there is no change.
//   - A source that fails is run again, and its pods stay meanwhile. The pods of a source
//     that is removed are removed.
//
// Pods in changes carry two annotations: kubernetes.io/config.source is the name of the
// source, and kubernetes.io/config.seen the time when the source first delivered the UID.
// Their creation and deletion have whole seconds. The pods are shared and must not be changed.
package podconfig
