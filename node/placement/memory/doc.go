// Package memory gives containers of Guaranteed pods memory and huge pages on memory nodes (NUMA nodes) of their own
// choice: kubelet's memory manager with the policy Static. It keeps what is free on each node (kubelet: the machine
// state), and has the runtime set cpuset.mems of the containers.
//
// # Vocabulary
//
//   - A [Block] is an amount of memory, or of huge pages of one size, on one or several nodes.
//   - A group is a set of several nodes on which a block lies. A node is in one group at a time, and no block on a
//     single node has memory of a node in a group.
//   - A [Reservation] is memory of a node that no container is given. It is for the system.
//   - The state is the file memory_manager_state, in kubelet's format.
//
// # Use
//
// A [Manager] is given to a topology manager, which calls Hints and Allocate at the admission of a pod, and to the
// agent as a component (kubeletkit.Options.Join), beside it. It reads the state when it joins the agent. Without a
// topology manager, the program calls Allocate for each container of a pod that is admitted.
//
// # Guarantees
//
//   - Only Guaranteed pods are given memory, as in kubelet; those with resources as a whole only with
//     Options.WholePods. Others use all nodes and cost nothing.
//   - A pod with resources as a whole has its memory at once, if package topology places pods (its scope pod, with a
//     policy), and its containers have parts of that on the same nodes. A pod whose containers would share nothing is
//     refused with [ReasonEmptyPool]. Otherwise each container whose requests of CPU and memory equal its limits has
//     its own. The state of a machine with such pods is that of kubelet 1.37; those of 1.36 cannot be read.
//   - The blocks of a resource never exceed what is allocatable of it.
//   - A container that has its blocks keeps them until the pod has ended, also across restarts of the agent. The state
//     is written when the agent starts, and in Prepare, before a container of the pod starts. Admission writes nothing.
//   - Containers reuse what init containers before them have, on the same nodes. When a container is created, what is
//     left of init containers before it is free, and is not taken again after a restart of the agent (kubelet takes it
//     again).
//   - Memory is not exclusive: containers without blocks may use every node. The machine state only keeps the sum of
//     all blocks below what there is.
//   - A state that does not fit the machine or the reservations is a [StateError], unless no pod holds memory. If no
//     pod of it runs, or with Options.Reset, it is replaced by an empty one. See Manager.State.
//   - Otherwise the manager is suspended: nothing is given, and pods with memory of which nothing runs yet are
//     refused. Pods that run go on; their containers get all nodes when they are created again. The state stays as it
//     is until the pods in it have ended, or, if it cannot be read, until a start with a reset. A file that the disk
//     does not return is another error, and is never replaced.
//   - What a pod of an earlier agent holds is given back when the pod is gone: [lifecycle.Node].Gone is true, or there
//     is no directory of it in "pods" below the root directory, which the agent makes before anything of the pod runs.
//   - A resize of the memory of a Guaranteed pod is infeasible, as in kubelet, and so is one of what a pod has as a
//     whole.
package memory
