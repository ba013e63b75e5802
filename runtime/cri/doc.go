// Package cri is the default [runtime.Runtime]: it turns pods into calls to a
// container runtime that speaks CRI v1, such as containerd or CRI-O, over one
// socket.
//
//	rt, err := cri.Dial(ctx, "unix:///run/containerd/containerd.sock", cri.Options{Logger: log})
//	defer rt.Close()
//
// # Vocabulary
//
//   - A call is one gRPC call. Each is bounded by [Options].CallTimeout; those that
//     wait on purpose (a grace period, a command) get that time on top, and pulls end
//     only with their context.
//   - A waiting reason is the API's word for why a container does not run though it
//     should: ErrImagePull, CreateContainerConfigError, CrashLoopBackOff.
//   - An event is a [runtime.Event], with kubelet's reason and message. Events go to the
//     hook in [runtime.PodSync].Event and [runtime.PodKill].Event.
//
// # What it does
//
// Decisions are made by package plan, configurations by the internal package
// translate; here calls are made, in as small a number as CRI allows:
//
//   - A list of all pods: 2, streamed where the runtime can (KEP-5825; containerd
//     2.4 does), so that no list is too long. A status of one pod: 2, and then 1 for each
//     container, side by side, and for a ready sandbox that was not asked about yet.
//   - A watch of events: 1, as long as it lasts.
//   - A new pod: RunPodSandbox, PodSandboxStatus for its addresses (not with the
//     host's network), ImageStatus for each image, and CreateContainer and StartContainer
//     for each container.
//
// Labels, annotations and log paths are kubelet's, so each may take over the
// other's pods. Sandboxes and containers without those labels are never touched.
//
// # What it puts on disk
//
// In [runtime.PodSync].Dir: the file etc-hosts, and
// termination-log.<container>.<8 hex digits> for the termination message of each
// instance, which is removed with the instance. In [runtime.Host].PodLogsDir: the
// pod's log directory and one directory for each container, in which the runtime
// writes. [Runtime.RemoveContainer] removes the logs of the instance; the directories
// are left to who collects garbage.
//
// # Guarantees
//
//   - A Runtime starts no goroutine that outlives a call of its methods, and needs no
//     connection to exist: without one, calls fail with [runtime.ErrUnavailable], and
//     work again when the socket is back.
//   - When its context ends, SyncPod begins nothing more. A sandbox that is being made, or
//     a container on its way from CreateContainer to the end of its postStart hook, gets up
//     to 3 seconds: runtimes leave half done what is cut off, sometimes so that it cannot be removed
//     any more (containerd#11037), and a hook that was cut off is not run again.
//   - An error says the call, the pod and the container, and unwraps to
//     [runtime.ErrNotFound], [runtime.ErrUnavailable], [errors.ErrUnsupported] for a call
//     that the runtime does not have, or the context's error where it is one of these,
//     and to the gRPC status. One about a message above a limit says both sizes, and which
//     limit to raise.
//   - Crash and pull back-offs are kept by pod UID in memory, until [Runtime.KillPod]
//     has succeeded or nobody has asked for the pod for twice the longest of them.
//     After a restart of the agent they begin anew, as with kubelet.
//   - The message of a hook or of a credential is in no event.
//
// # Differences from kubelet
//
//   - The images of a pod's containers are fetched side by side, while its sandbox is
//     made; containers still start in order.
//   - Containers to be stopped for a restart are stopped side by side.
//   - A start under way is not cut off because its pod is removed or the agent stops.
//   - KillPod with a grace period of 0 kills at once; kubelet leaves 2 seconds.
//   - A preStop hook that has ended is not run again when a kill is asked for again.
//   - The instances of one container, and the sandboxes of a pod, are ordered by their
//     attempt before their time of creation.
//   - Lists are streamed without a feature gate, and a response may have 128 MiB, in
//     kubelet 16.
//   - Without a record of it, the grace period of a container whose spec is gone is 30
//     seconds; in kubelet it is 2.
//   - Resources are reported as cgroup limits give them back, CPU requests of 2
//     milli-CPU and less as none.
//
// Not there yet: image volumes, credential provider plugins, checks whether a pod
// may use an image that another has pulled, resizing in place, the links of
// /var/log/containers, streaming exec, attach and port-forward, Windows.
package cri
