// Package csi sets up volumes of drivers of the Container Storage Interface (CSI), as kubelet does. [Plugin] is the
// plugin of a node for all drivers.
//
// # Vocabulary
//
//   - A driver is a program of the node that serves the CSI services Identity and Node at a socket. It registers itself
//     with package plugins.
//   - The handle is the name that a driver has for a volume. Driver and handle together are the key of the volume.
//   - A volume is attached to the node by a controller of the cluster, staged once for the node, and published for each
//     pod. Not each driver attaches, and not each driver stages.
//   - An inline volume is in the spec of a pod. It lives as long as the pod, and is only published.
//   - A block volume is used as a device. Any other volume has a file system, which containers mount.
//   - The publish context is what the controller of a driver hands to the driver on the node.
//   - A record is a file vol_data.json, which has the driver and the handle of a volume.
//
// # Walk through
//
//	member, err := cluster.New(cluster.Config{NodeName: name, REST: rest, CSI: true})
//	drivers, err := csi.New(member.Storage(), rootDir, csi.Options{})
//	manager, err := plugins.New(filepath.Join(rootDir, "plugins_registry"),
//		map[string]plugins.Handler{plugins.TypeCSI: drivers}, plugins.Options{})
//	opts.Volumes.Persistent = append(opts.Volumes.Persistent, intree.Wrap(drivers))
//	opts.Join = append(opts.Join, drivers, manager)
//	err = member.Configure(&opts)                    // after Persistent
//	opts.API.Claims = intree.Claims(opts.API.Claims) // after Configure
//
// Package kubelet does this.
//
// When a driver registers, the plugin calls NodeGetInfo, and publishes the answer in the CSINode object.
//
// For a pod with a claim, the [volume.Reconciler] calls:
//
//   - Attach, which declares that the node uses the volume, see [Plugin.VolumesInUse], and returns an error until the
//     VolumeAttachment is attached. It returns at once if the CSIDriver object has attachRequired: false.
//   - Stage, which writes the records and calls NodeStageVolume. It calls it once for all pods of the agent, if the
//     driver has the capability STAGE_UNSTAGE_VOLUME.
//   - Publish, which calls NodePublishVolume with the attributes, the secrets, and the information about the pod and
//     its tokens that the CSIDriver object requests.
//
// If SELinux is on and the CSIDriver object has seLinuxMount: true, both calls have the mount flag context with the
// label of the pod, and the runtime does not relabel the files. The label is in the records.
//
// When the pod has gone, the Reconciler calls Unpublish, and Unstage for the last pod of the volume. After that the
// node does not use the volume any more, and the controller detaches it.
//
// # Guarantees
//
// Register: after it has returned, pods that wait for the driver are synced. The cluster has the last state of a
// driver, however its registrations and their ends overlap. A driver that is registered with a version that is not
// higher than that of another one with its name is refused.
//
// Stage and Publish: the records are on disk before the driver is called. A call that the driver refuses for good
// leaves no record, unless something is at the path of the call: then the end of the pod needs no driver. A call that
// has timed out, or whose driver has ended, leaves the record: the driver may still do its work. The codes of such
// calls are those of kubelet.
//
// Unpublish and Unstage: they need the records only, and no object of the cluster. Nothing is removed across a mount.
// They write nothing, so that a full disk keeps no volume. A volume is unstaged only if no pod has a record of it. When
// Unstage has begun, the next pod stages the volume again, whatever the driver answers.
//
// Find and Published read the disk and the list of mounts. They do not call a driver.
//
// Stats: an answer to NodeGetVolumeStats counts for 30 s, for all pods of the volume.
//
// VolumesInUse: a volume is in the result before Attach asks whether it is attached, until it is unstaged, or at most
// 10 s longer than the CSIDriver object requires the attachment. Run reads those of an earlier agent from the records.
//
// Secrets and tokens are in memory and in calls, and in no file, message or error of this package. Package
// cluster/storage keeps the secrets of volumes in the checkpoint of the agent. The texts of a driver are passed on as
// they are.
//
// A driver that hangs holds up the pods with its volumes, each call until [Options].CallTimeout. All else goes on.
//
// # State on disk
//
// Paths and records are those of kubelet 1.37: a kubelet finds the volumes of this package, and this package those of a
// kubelet. A record that a power failure has left empty or half written counts as missing. One more record is in the
// directory of the pod, in plugins/kubernetes.io~csi/<volume>, which this package trusts first.
//
// # Differences from kubelet
//
//   - What a driver can do is asked once for each registration. kubelet asks before each call.
//   - kubelet also passes the staging path of a block volume to drivers without STAGE_UNSTAGE_VOLUME.
//   - The lifecycle modes of a CSIDriver object count for block volumes, too. A CSIDriver object without an
//     fsGroupPolicy has the default of the API.
//   - A ReadWriteOncePod volume is in use until it is unpublished and unstaged, and not only while a pod runs.
//   - A call that fails for good after one that has timed out is undone at the end of the pod.
//   - Containers of a pod whose volume could be published once are started while it cannot be published again.
//
// Volumes of the types that Kubernetes has moved to CSI drivers are translated by package intree, which wraps this
// plugin.
package csi
