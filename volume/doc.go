// Package volume makes ready on the host what the containers of a pod mount, and
// takes it down again.
//
// # Vocabulary
//
// A [Plugin] knows one type of volume. The [Manager] asks the plugin of each
// volume of a pod to set it up and returns where it stands; the runtime mounts
// it into the containers. What belongs to a pod lies in the pod's directory, as
// kubelet lays it out: volumes in volumes/<plugin>/<name>, sub-path mounts in
// volume-subpaths/<volume>/<container>/<index>.
//
// # Types
//
// [HostPath] gives what is on the host, after checking its type. [EmptyDir] gives
// a directory that lives as long as the pod, on disk or in memory; see
// [Manager.Exceeded] for its size limit. A volume of any other type is an error
// that names it, and keeps its pod, and no other, from starting.
//
// # Sub-paths
//
// [Manager.SubPath] opens the path below the volume with [os.Root], which no
// symbolic link leads out of, and bind-mounts what it has opened: a container
// that swaps a directory for a link between the check and the mount gains
// nothing. Only where the agent may not mount is the checked path given itself,
// without protection from such a swap.
//
// # Guarantees
//
// SetUp, TearDown and Remove are idempotent and may be called after a crash at any
// point. Remove never deletes across a mount: if something below the directory
// cannot be unmounted, it says so and deletes nothing. All methods are safe for
// concurrent use by different pods.
package volume
