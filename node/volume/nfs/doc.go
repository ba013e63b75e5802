// Package nfs sets up volumes of NFS servers: persistent volumes behind claims, and volumes in the specs of pods, also
// of pods that come from a file and not from an API server.
//
// [Plugin] is a [volume.PersistentPlugin]. It mounts a volume once for each pod that uses it, with the program mount
// of the machine, which needs mount.nfs, in the directory where kubelet mounts it:
// pods/<uid>/volumes/kubernetes.io~nfs/<name>. The mount options are those of the persistent volume. A volume in the
// spec of a pod has none. The files keep their owners: the fsGroup of a pod is a supplemental group of its containers
// only.
//
// # Servers that do not answer
//
// A server that does not answer delays only the pods that use it:
//
//   - A volume that is mounted is not mounted again, also after a restart of the agent, and nothing asks its server.
//   - mount ends after two minutes by itself, and with the context of the call: with the pod, or with the agent. A
//     volume has at most one call under way.
//   - umount has [Options.UnmountTimeout]. Then the volume is unmounted by force: calls that wait for the server end
//     with an error, and the mount point is free at once. What containers have written and the server has not stored
//     is lost.
//   - The usage of the volume is missing as long as the server does not answer.
//
// A container of such a pod can still hang where it reads or writes the volume. It ends when it is killed.
//
// # What a machine needs
//
// The agent needs CAP_SYS_ADMIN in the first user namespace, and the machine the package nfs-common (Debian, Ubuntu),
// nfs-utils (Fedora, Red Hat, Alpine) or nfs-client (SUSE). If either is missing, the pod waits, and the event
// FailedMount says what to do. Files are locked with NFS version 3 only if rpc.statd runs; the mount option nolock
// does without it.
package nfs
