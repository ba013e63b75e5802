// Package cri is the default [runtime.Runtime]. It runs pods by calls to a container
// runtime that implements CRI v1, such as containerd or CRI-O, over a socket.
//
//	rt, err := cri.Dial(ctx, "unix:///run/containerd/containerd.sock", cri.Options{Logger: log})
//	defer rt.Close()
//
// # Vocabulary
//
//   - A call is one gRPC call. [Options].CallTimeout bounds it; the grace period of a
//     stop is added. Only the context bounds image pulls and commands.
//   - A waiting reason is the API's reason why a container that should run does not:
//     ErrImagePull, CreateContainerConfigError, CrashLoopBackOff.
//   - An event is a [runtime.Event] with kubelet's reason and message. Events go to the
//     hook in [runtime.PodSync].Event and [runtime.PodKill].Event.
//
// # Calls
//
// Package plan makes the decisions, and the internal package translate makes the
// configurations. This package makes the calls, as few as CRI allows:
//
//   - A list of all pods takes 2 calls, which are streamed if the runtime supports that
//     (KEP-5825; containerd 2.4), so that the length of a list is not limited.
//   - While there is an event stream, the status of a pod takes, in parallel, 1 call for
//     each container and each sandbox that was not dead before. Without one, 2 list calls
//     come first, and then 1 call for a ready sandbox only until its addresses are known.
//     Runtimes read all pods for a list of one pod, so statuses that are asked for while a
//     list is under way share the next one.
//   - A watch of events takes 1 call for its duration.
//   - An image is found or pulled by [runtime.PodSync].EnsureImage; package images has policies, back-off and
//     credentials.
//   - A new pod takes RunPodSandbox, PodSandboxStatus for its addresses (not with the
//     host's network), ImageStatus for each image, and CreateContainer and StartContainer
//     for each container.
//   - A resize takes UpdateContainerResources for each container, after ContainerStats for
//     those whose limit of memory becomes smaller.
//   - The end of a pod takes StopContainer for each container, StopPodSandbox, and
//     RemovePodSandbox, which removes the containers, too. While
//     there is an event stream, the sandbox of a pod that was removed from its source is not stopped
//     before its removal, unless it has host ports. If events have shown that RemovePodSandbox
//     stops a sandbox, as in containerd, it takes no StopPodSandbox at all. From the end of its
//     containers on the sandbox is reported as not ready.
//
// # Many pods at once
//
// A runtime does not get faster with more than a few calls at once: each of them takes
// longer, and some fail. So calls that start something pass a semaphore of
// [Options].MaxParallelStarts places, and what ends passes one of [Options].MaxParallelEnds.
// Each has two priorities:
//
//   - Containers start before further sandboxes, so that pods become ready one after the other.
//   - The containers of all pods are stopped before sandboxes are stopped and anything is removed.
//     A stop mostly waits for its container, so 32 containers are stopped in one place.
//
// What has the second priority goes on one at a time in any case. The containers of a pod pass
// together, and their grace period begins when they have passed. The timeout of a call begins with
// the call. Containers that are stopped to be restarted, and sandboxes to be replaced, do not wait
// for pods that end.
//
// Labels, annotations and log paths are kubelet's, so that this agent and a kubelet can take
// over the pods of each other. Sandboxes and containers without kubelet's labels are not
// touched.
//
// # Files
//
// In [runtime.PodSync].Dir: the file etc-hosts, and
// termination-log.<container>.<8 hex digits> for the termination message of each
// instance, which is removed with the instance. In [runtime.Host].PodLogsDir: the log
// directory of the pod with a directory for each container, in which the runtime
// writes. [Runtime.RemoveContainer] removes the logs of the instance; removing the
// directories is left to the garbage collection.
//
// # Guarantees
//
//   - A Runtime starts no goroutine that outlives the call of a method. It can be
//     created without a connection: calls then fail with [runtime.ErrUnavailable], and
//     succeed when the socket is back.
//   - When its context ends, SyncPod starts nothing more. A sandbox that is being created,
//     and a container between CreateContainer and the end of its postStart hook, get up
//     to 3 seconds: runtimes do not clean up well after calls that are cut off
//     (containerd#11037). A postStart hook that takes longer is cut off. The next agent
//     runs it again, if [runtime.PodSync].Dir was given.
//   - An error has the call, the pod and the container. It unwraps to
//     [runtime.ErrNotFound], [runtime.ErrUnavailable], [errors.ErrUnsupported] for a call
//     that the runtime does not implement, or the context's error, if one of these applies,
//     and to the gRPC status. The error of a message above a limit has the size, the limit and
//     the option that raises the limit.
//   - Crash back-offs are kept by pod UID in memory, until [Runtime.KillPod] has succeeded or the pod was not
//     synced for twice the longest back-off. They are also recorded with each container, and continue with the next
//     agent.
//   - No event contains the output of a hook or a credential.
//
// # Differences from kubelet
//
//   - The images of a pod's containers are fetched in parallel, while its sandbox is
//     created; containers still start in order.
//   - Containers that are stopped for a restart are stopped in parallel.
//   - A start in progress is not cut off when its pod is removed or the agent stops.
//   - KillPod with a grace period of 0 kills at once; kubelet leaves 2 seconds.
//   - A preStop hook that has ended is not run again when a kill is repeated.
//   - Stops and removals are bounded and ordered, over all pods. In kubelet, all pods that
//     end at the same time are stopped at once, each by itself.
//   - A sandbox that this Runtime has stopped is not stopped again before it is removed,
//     and a sandbox may be removed without a stop; see above. A sandbox that has
//     died by itself, or that an earlier agent may have stopped, is stopped again: only this
//     releases its network.
//   - The instances of one container, and the sandboxes of a pod, are ordered by their
//     attempt before their time of creation.
//   - Lists are streamed without a feature gate, and a reply may have 128 MiB, the output
//     of a command 4 MiB; in kubelet both may have 16 MiB.
//   - The grace period of a container without a spec and without a record of it is 30
//     seconds; in kubelet it is 2.
//   - Resources are reported as the limits of the cgroup express them. A CPU request of 2
//     milli-CPU or less is reported as none.
//
// Not supported yet: images by runtime handler (KEP-4216), the logs of cri-dockerd, Windows.
package cri
