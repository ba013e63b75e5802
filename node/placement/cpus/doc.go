// Package cpus gives containers CPUs of their own, and keeps all other containers off these. It is kubelet's CPU
// manager with the policy static (KEP-3570); an agent with the policy none does without this package, except for
// [StaticLeft] and [Options.Leave].
//
// # Vocabulary
//
//   - A CPU is what the kernel schedules threads on; a core has one or more. See [numa.CPU].
//   - Exclusive CPUs are those of one container: it requests a whole number, and its pod is Guaranteed, see
//     [Exclusive].
//   - A pod as a whole is one with resources of its own (PodSpec.Resources). With [Options].WholePods it may have CPUs
//     that no other pod has; what its containers do not have exclusively, the others of them share.
//   - The shared pool is the CPUs of all other containers: those that are not exclusive.
//   - Reserved CPUs are never exclusive. They belong to the shared pool, except with the option strict-cpu-reservation.
//   - An assignment is the exclusive CPUs of a container. The checkpoint has all of them, in kubelet's file
//     cpu_manager_state.
//   - A set is the list of CPUs that the kernel allows a container (cpuset).
//
// # Walk through
//
// [Take] and [Hints] decide; both are pure functions of the machine, the free CPUs and [PolicyOptions]. A [Manager]
// joins the life of pods: at the admission of a pod, package topology calls Manager.Hints and Manager.Allocate for each
// container, or Manager.AllocatePod for a pod as a whole, whose CPUs [Partition] divides. Prepare writes the checkpoint
// before the pod starts. EditContainer returns the set that a container is created with. When assignments change, Run
// changes the sets of the containers that run in the shared pool, with [runtime.CPUSetter]. When nothing of the pod
// runs any more, Ended gives its CPUs back.
//
// # Guarantees
//
//   - No CPU is assigned to two pods. Inside a pod, containers share only what an init container leaves, or what the
//     pod has as a whole.
//   - Assignments of a pod are given back when it was refused or has ended; never while a container runs.
//   - A container with exclusive CPUs starts only after the checkpoint is written. The next agent, or kubelet, keeps
//     the assignments. If a full disk prevents that, only pods with exclusive CPUs wait.
//   - A checkpoint with CPUs that are not online, are reserved or belong to two pods, or that cannot be read, is a
//     [*StateError], see Manager.State. If no pod of it runs, or with Options.Reset, what is right of it is kept; other
//     containers get CPUs anew, while they run. A change of the CPUs of the machine that concerns no assignment is no
//     error.
//   - Otherwise the manager is suspended. Containers of the checkpoint keep what they have, and get it again
//     when they are created again. Others are kept off these CPUs. Nothing is assigned: Allocate fails for a pod of
//     which nothing runs yet. The checkpoint stays as it is. The suspension ends when the pods have ended whose CPUs do
//     not go with the machine.
//   - If the checkpoint cannot be read, it is not known which CPUs are exclusive. Then the manager sets the CPUs of no
//     container, and the suspension lasts until a start with a reset, or with a checkpoint that can be read. A limit of
//     CPU is enforced again for all containers.
//   - What a pod of an earlier agent holds is given back when the pod is gone: [lifecycle.Node].Gone is true, or there
//     is no directory of it in "pods" below the root directory, which the agent makes before anything of the pod runs.
//   - Containers without exclusive CPUs are not created while the shared pool is empty, which happens with
//     strict-cpu-reservation, or when its CPUs have gone offline.
//   - A runtime that hangs delays the sets of running containers only, not pods. They are set again until it succeeds.
//   - The machine is that at the time of [New]. CPUs that go offline later are left out of the shared pool, and are not
//     assigned, until the next agent starts, with [Options.Online]: with cgroup v1 a container with one of them does
//     not start. What has them exclusively keeps them. CPUs that come later are not used.
//   - With exclusive CPUs no limit of CPU is enforced, if the cgroups of pods leave it out, too: [Manager.NoCPUQuota]
//     says for which.
//
// # Pods as a whole
//
// They are placed as in kubelet with the feature gate PodLevelResourceManagers (KEP-5526). If package topology places
// pods (its scope pod, with a policy), a Guaranteed pod that requests a whole number has these CPUs at once. Otherwise
// each container with equal requests and limits of CPU and memory gets its own, and the others use the shared pool.
//
//   - The containers of a pod have parts of its CPUs, none is empty, and those of containers with exclusive ones that
//     run beside one another have no CPU in common. As in kubelet, a sidecar that shares CPUs may run on those of an
//     init container. A pod whose containers would share nothing is refused with [ReasonEmptyPool].
//   - A limit of CPU is enforced for the containers that share CPUs, and for the pod as a whole unless all containers
//     have exclusive ones.
//   - A pod that has CPUs keeps them when an agent starts with other settings, also without Options.WholePods. A resize
//     of the CPUs that it has as a whole is infeasible.
//   - The checkpoint of a machine with such pods is that of kubelet 1.37. Those of 1.36 cannot be read.
package cpus
