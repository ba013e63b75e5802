// Package scsi sets up volumes on disks of a network, of iSCSI targets and of Fibre Channel: persistent volumes, and
// volumes in the specs of pods, also of pods that come from a file and not from an API server.
//
// [NewISCSI] and [NewFC] return a [volume.PersistentPlugin] each. It makes the disk a device of the node, mounts its
// file system once for the node, and binds it for each pod; or it binds the device, for volumeMode Block. All paths and
// files are kubelet's, so that either finds the volumes of the other:
//
//	plugins/kubernetes.io/iscsi/iface-<iface>/<disk>                 where the file system is mounted for the node
//	plugins/kubernetes.io/iscsi/volumeDevices/iface-<iface>/<disk>   has a device for each pod, with its UID as name
//	…/<disk>/iscsi.json                                              how to log out; below the mount
//	pods/<uid>/volumes/kubernetes.io~iscsi/<volume>                  where the file system is bound for a pod
//	pods/<uid>/volumeDevices/kubernetes.io~iscsi/<volume>            a link to the device for the pod
//
// A disk is <portal>-<iqn>-lun-<lun>. Those of Fibre Channel are in plugins/kubernetes.io/fc, and a disk is
// <wwn>-<wwn>-lun-<lun> or <wwid>-<wwid>. One file is only this agent's:
// pods/<uid>/plugins/kubernetes.io~iscsi/<volume>/disk names the disk.
//
// # File systems
//
// They are made, checked and mounted as those of package node/volume/local: a disk is formatted only if nothing is on
// it. The files belong to the fsGroup of the pod that comes last, as in kubelet.
//
// # Sessions
//
// The program iscsiadm discovers the target at each portal and logs in. The disks of a target share the sessions; the
// session ends with the last disk that a volume or the host uses. Only the disk of the volume is scanned. With several
// portals, one that works is enough, and multipathd, if it runs, joins the devices.
//
// Names and passwords for CHAP are in no log and in no error. Iscsiadm has them as arguments only, as with kubelet: who
// can list the processes of the host can see them for some milliseconds. Then they are in its database, which only root
// can read, until the session ends.
//
// # Fibre Channel
//
// The kernel finds the disks, and udev names them in /dev/disk/by-path and /dev/disk/by-id. All adapters are scanned if
// fewer paths are there than the volume names, and there is no multipath device. After the last pod, the devices are
// removed from the kernel. This is tested with files in the place of those of a kernel, and with no adapter.
//
// # Disks that do not answer
//
// A disk that does not answer delays only the pods that use it:
//
//   - A file system that is mounted is not mounted again, also after a restart of the agent, and nothing asks the disk.
//   - Each program ends after a limit, and with the context of the call.
//   - The kernel repeats what a dead target does not answer, and fails after node.session.timeo.replacement_timeout of
//     iscsid.conf. So long an unmount or the end of a session can take. After [Options.UnmountTimeout], a file system
//     is unmounted lazily if none of its paths works. What containers have written and the target has not stored is
//     lost. Nothing is written any more when the target is back, since the session has ended.
//
// # What a machine needs
//
// The agent needs CAP_SYS_ADMIN in the first user namespace, and the machine the package open-iscsi (Debian, Ubuntu,
// SUSE, Alpine) or iscsi-initiator-utils (Fedora, Red Hat) with the service iscsid, and the programs that package
// node/volume/local needs. What is missing is named in the event FailedMount.
package scsi
