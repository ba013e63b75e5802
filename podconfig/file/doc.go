// Package file reads pods from manifests on disk: from a directory, as kubelet's
// staticPodPath, or from a single file.
//
// # Vocabulary
//
//   - A manifest file is a file of a directory whose name ends in .yaml, .yml or .json.
//     Hidden files, backups of editors and subdirectories are ignored. Symbolic links
//     are followed, so a mounted ConfigMap works. A file holds any number of pods, see
//     [github.com/kubeletkit/kubeletkit/podconfig/manifest.Decode], and with
//     [Options.AsKubelet] one.
//   - A scan looks at all manifest files and reads the files that may have changed.
//   - A file is broken if its current content is not a valid manifest.
//   - A restored pod is a pod of an earlier run of the agent, see podconfig.Sink.
//
// # Use
//
// Give a [Source] to the agent, or to a podconfig.Mux. Secrets and config maps that
// pods refer to may be in a directory of their own, see [NewObjects], or among the
// manifests, see [Options.Objects]. They are read and checked like pods.
//
// # Guarantees
//
//   - If the kernel reports a change (inotify), the change is found within some tens of
//     milliseconds. Otherwise the next periodic scan finds it: behind symbolic links to other
//     directories, on network file systems, and beyond a limit of inotify, which is logged
//     once.
//   - A file that has not changed is not parsed again.
//   - If the kernel reports that a file was deleted, its pods are removed, also if the file is there
//     again at once with the same content. A file that is replaced by a rename is not deleted.
//   - While a file is broken or cannot be read, the last valid pods of that file stay,
//     and the pods of all other files are not affected. A Source that starts with a
//     broken file has no valid pods of it. Then restored pods that are in no other file
//     stay until every file has been valid once, because they may be from the broken
//     file.
//   - A read that has no answer within 5 seconds, such as one of a file system that hangs, is a
//     problem of its file. It is not repeated while it has no answer. The other files are read,
//     and Run returns without it.
//   - A file is reported as broken only if it has not been written to for a quarter of
//     a second. It may be half written.
//   - Each problem is reported once while it lasts, and so is its end. A file without a
//     readable pod is a problem of each of its last valid pods.
//   - A path that does not exist holds no pods. With [Options.Await] it delivers nothing
//     until it has existed. A path that cannot be read delivers nothing.
//   - An immutable secret or config map does not change while its file exists. A file
//     that changes one is broken.
//   - Messages about a secret name its fields, never its values. A file with secrets
//     that users other than its owner can read is logged once.
package file
