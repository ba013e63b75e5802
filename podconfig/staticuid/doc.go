// Package staticuid decides the UIDs of static pods whose manifests have none, so that such a pod
// runs on when the agent of the node is replaced.
//
// # Why
//
// A UID is derived from the manifest, so that another manifest is another pod. But each minor version of kubelet
// derives another one, from its own API types, and so does this module, see podconfig/manifest.Options.KubeletVersion.
// A pod that gets another UID is another pod: it is stopped and started again, and on a node of kubeadm that is the
// control plane.
//
// # How
//
// [UIDs.UID] is the StaticUID of podconfig.Options. It returns, the first that there is,
//
//   - the UID of the pod that runs, if it is the pod of the manifest: its sandbox has the annotation
//     kubernetes.io/config.source with that source, and the labels and annotations of the manifest; each
//     container that runs has the [podspec.ContainerHash] of the container in the manifest; and the manifest
//     has not been changed since the annotation kubernetes.io/config.seen. If several pods of the name run,
//     the one with the newest sandbox counts, by the clock of the runtime: an agent that is stopped while it replaces a
//     pod leaves both. If none runs, the newest that has ended counts.
//   - the UID that was kept for this content of the manifest.
//   - the UID that was derived.
//
// A manifest that has changed gets another UID: a UID that was kept for other content is not used.
//
// [podspec.ContainerHash] is a hash of the name and the image only, as in kubelet. So the time of the last
// change counts, too; a manifest that was written anew since the pod was started is taken for a changed one. If the
// time is not known, as of a URL without the header Last-Modified, a changed command is not found.
//
// [UIDs.Restored] is for pods that are restored from a checkpoint, see podconfig.Options.Restore: another agent
// may have started the same pods anew meanwhile.
package staticuid
