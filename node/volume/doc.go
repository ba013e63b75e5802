// Package volume makes the volumes of pods ready on the host and takes them down
// again. [Manager] is the interface, [Reconciler] its default implementation.
//
// # Vocabulary
//
// A [Plugin] supports one type of volume. The [Reconciler] calls the plugin of each volume that a
// container uses to set it up and returns where it is; the runtime mounts it into the containers.
// All that belongs to a pod is in the pod's directory, with kubelet's layout: volumes in
// volumes/<plugin>/<name>, the state of plugins in plugins/<plugin>/<name>, and mounts of
// sub-paths in volume-subpaths/<volume>/<container>/<index>.
//
// # Types
//
// [HostPath] is a path of the host, after a check of its type. [EmptyDir] is a directory that
// exists as long as the pod, on disk or in memory; for its size limit see [Reconciler.Exceeded].
// [ConfigMap], [Secret], [DownwardAPI] and [Projected] are files with the content of [Sources].
// [Claim] is a persistent volume: a directory of the host, or one of a [PersistentPlugin]. The runtime mounts [Image]
// volumes. Packages csi, csi/intree, nfs and local have plugins for other types. A volume of a type
// that no plugin supports is an error that names it, and says what to do. Its pod does not start;
// other pods do.
//
// # Files from objects
//
// Each SetUp reads the content of a volume of files again, from the objects, the tokens and the
// pod. If it differs from the files on disk, it is written to a new directory, and the link
// ..data is replaced by a link to that directory, as in kubelet. The files in the volume are
// links through ..data. So a reader of ..data reads all old files or all new ones, never a
// mixture, and a container can watch ..data for changes. If the content is unchanged, nothing is
// written. A mount of a sub-path keeps the files of the time when its container was started.
//
// To bring the files up to date soon after a change, sync the pods that refer to what has
// changed. The agent does so for secrets, config maps and pods within a second.
//
// If an object is missing, the pod waits. If the volume already had all its files and an object
// is missing or unknown later, the files stay, and containers of the pod are started: the error
// is an [OutdatedError].
//
// Secrets, tokens and fields of the pod are in memory, in a tmpfs. If the agent may not mount,
// they are on disk, readable as their modes and the pod's directory permit. A volume with the
// private key of a pod certificate fails in that case.
//
// # Types of your own
//
// [Options.Plugins] are tried before the default plugins. A plugin records on disk what it is
// about to attach, attaches it, and mounts it at the volume's directory. If SetUp is called
// again, the plugin finds the steps that are done and does the rest. TearDown is called for each
// volume for which SetUp was called. It must work with the records on disk alone: the agent may
// have been restarted, and the pod may be gone. Package volumetest tests that.
//
// A [PersistentPlugin] sets up persistent volumes of one type, such as those of CSI drivers, see package csi. The
// Reconciler finds the volume behind a claim, checks that both are bound to each other, the mode and the node affinity
// of the volume, and calls the plugin in the order Attach, Stage, Publish. At the end of the pod it calls Unpublish,
// and Unstage for the last pod of the volume on the node. If only Unstage fails, the pod need not wait: the error is
// [ErrStaged], and Remove calls it again. The Reconciler knows which pods use a volume: it refuses a second pod for
// a volume that is ReadWriteOncePod, and calls for one volume that change something never overlap. What is staged is
// found from the directories of pods, by Find of the plugin. With SELinux, it also knows which label each pod requests:
// it refuses a pod that requests another one than those that use the volume, and the plugin mounts the volume with the
// label if it can (KEP-1710). Embed [PersistentBase] for a type without stages: Name, Supports and Publish are enough
// for volumes that are mounted for each pod.
//
// The API has no volume type for plugins outside a cluster. A flexVolume has the name of a
// driver and options, which is enough for most plugins, and manifests may contain it. A csi
// volume in a manifest is refused unless its source allows it, see manifest.AllowedRefs.
//
// # Sub-paths
//
// [Reconciler.SubPath] finds the path below the volume with openat2, or with a walk of its own if
// the kernel has no such call; no symbolic link leads out of the volume. It does not open the
// file at the path, and bind-mounts exactly the file that it has found: a container that
// replaces a directory by a link between the check and the mount gains nothing. If the agent may
// not mount, the checked path itself is used, without protection from such a replacement. In a
// volume of files that is the path with its links, which then shows the latest content.
//
// # Guarantees
//
// SetUp, TearDown and Remove are idempotent and may be called after a crash at any point; tests
// fail and kill each step. There is no loop, and what is set up is found on disk and in the list of mounts, see
// docs/contribute/architecture.md. All file names in a volume of files are inside it: names such as ".." or
// "..data" are errors, and planted links are not followed. Remove never deletes across a mount: if
// a mount below the directory cannot be unmounted, the error names it and nothing in it is
// deleted. All methods are safe for concurrent use by different pods. Hashes of volumes of
// files that were found up to date are held in memory: such a volume is not read again while the
// payload and the inodes, sizes and times of its files stay the same. So are the users of the volumes
// of a [PersistentPlugin], which are read from disk when they are needed first, and what is published.
package volume
