// Package local sets up persistent volumes of the type local whose path is a block device, such as a disk or a
// partition of the node. Those whose path is a directory need no plugin: [volume.Claim] sets them up.
//
// [Plugin] is a [volume.PersistentPlugin]. All paths are kubelet's:
//
//	plugins/kubernetes.io/local-volume/mounts/<volume>                 where the file system is mounted for the node
//	pods/<uid>/volumes/kubernetes.io~local-volume/<volume>             where it is bound for a pod
//	pods/<uid>/volumeDevices/kubernetes.io~local-volume/<volume>       a link to the device, for volumeMode Block
//
// # File systems
//
// A device without anything on it gets a file system of the type in the volume (default: ext4), with mkfs. Whether
// there is anything, blkid says. A device with partitions, with another file system or with data that blkid knows is
// never formatted, nor is one that blkid cannot read, and one for a read-only volume. A file system that is there is
// checked and repaired by fsck before it is mounted. An error that fsck cannot correct keeps the pod waiting.
// Formatting and checks end with the context of the call only before mkfs has begun: a half-made file system would not
// be found again.
//
// The files belong to the fsGroup of the first pod. A second pod with another fsGroup does not change that, as in
// kubelet.
//
// # What a machine needs
//
// The agent needs CAP_SYS_ADMIN in the first user namespace, and the machine mount, blkid (util-linux), and mkfs and
// fsck of the types of file systems that are used (e2fsprogs, xfsprogs, btrfs-progs). What is missing is named in the
// event FailedMount.
package local
