// Package file is the source of pods that stand in manifests on disk: a directory
// of them, as kubelet's staticPodPath, or a single file.
//
// In a directory the files whose names end in .yaml, .yml or .json are read; hidden
// files, editors' backups and directories are not. Symbolic links are followed, so
// that a mounted ConfigMap works. A file holds any number of pods, see
// [github.com/kubeletkit/kubeletkit/podconfig/manifest.Decode].
//
// Secrets and config maps that pods refer to may stand in a directory of their own,
// see [NewObjects], or among the manifests, see [Options.Objects]. They are read,
// checked and followed as the pods are.
//
// # Guarantees
//
//   - A file that appears, changes or goes away is noticed within some tens of
//     milliseconds where the kernel tells of it (inotify), and at the next full
//     look where it does not: behind symbolic links that lead elsewhere, on network
//     file systems, and where a limit of inotify is reached, which is logged once.
//   - A file that did not change is not parsed again.
//   - While a file is broken or cannot be read, the last good pods of that file
//     stay, and those of all other files are untouched. A [Source] that starts with a broken
//     file knows none of it. Then restored pods, see [Source.Restored], that no other
//     file has had since go on until every file was good once: there is no telling which
//     of them are of that file.
//   - A file that does not parse is called broken only when it was left alone for a
//     quarter of a second, so that one that is being written is not complained of.
//   - Each problem is told once for as long as it lasts, and so is its end.
//   - A path that does not exist holds no pods; with [Options.Await] it says nothing
//     until it has existed. A path that cannot be read says nothing.
//   - An immutable secret or config map does not change while its file is there;
//     what a file says otherwise is a problem of that file. Messages about a secret
//     name its fields, never their values, and a file with secrets that others than
//     its owner can get at is warned about once.
package file
