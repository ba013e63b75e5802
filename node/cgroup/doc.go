// Package cgroup gives the pods of a node their cgroups, as kubelet does.
//
// Containers of a pod belong to one cgroup, so that the pod as a whole can be limited and
// measured. Its path depends on the quality-of-service class of the pod. For the root "/"
// and the UID "a-b", a runtime receives this path:
//
//	class       driver cgroupfs               driver systemd
//	Guaranteed  /kubepods/poda-b              /kubepods.slice/kubepods-poda_b.slice
//	Burstable   /kubepods/burstable/poda-b    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice
//	BestEffort  /kubepods/besteffort/poda-b   /kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice
//
// The driver is that of the runtime. A runtime refuses a path of the other driver. The
// names and numbers are those of kubelet 1.37 (pkg/kubelet/cm), so that an agent and a kubelet can take over the
// pods of each other.
//
// # Parts
//
//   - [Pods] has the names of the cgroups of pods, and removes those of pods that are gone.
//   - [Manager] makes them with the limits of their pods, and gives the cgroups above them what their pods need. It is
//     a component of package lifecycle.
//   - [PodResources], [QOS], [NodeResources], [Shares] and [Weight] compute the settings. They are pure functions.
//
// # Embedding
//
//	var rt *cri.Runtime
//	pods, err := cgroup.New(cgroup.Options{Driver: func() string { return rt.Features().CgroupDriver }})
//	...
//	manager, err := cgroup.NewManager(pods, cgroup.ManagerOptions{Capacity: capacity, Enforce: []cgroup.Enforcement{cgroup.EnforcePods}})
//	...
//	rt, err = cri.Dial(ctx, endpoint, cri.Options{CgroupParent: pods.Parent})
//	...
//	agent, err := kubeletkit.New(kubeletkit.Options{
//		Join: []lifecycle.Component{manager},
//		GC:   gc.Options{Cgroups: manager},
//	})
//
// Without a Manager, the OCI runtime makes the cgroups when it starts the sandbox, without limits: runc and crun make
// directories with the driver cgroupfs, and systemd makes the slices above a scope. Then [Pods] is for
// Options.GC.Cgroups.
//
// # What a Manager does
//
//   - Prepare makes or changes the cgroup of a pod, before its sandbox. If nothing has changed it costs one look at the
//     directory, which finds that somebody else has removed it.
//   - A pod that is resized (KEP-1287, KEP-5419) has the larger of what it has and is to have, of CPU and memory each,
//     until its containers hold what they are to have. A limit of memory below the usage is not set: it would kill.
//     Then neither the pod nor its containers are resized, and the resize is tried again.
//   - Inspector adds what the kernel has to the status of a pod whose containers run.
//   - The limits of a pod as a whole (KEP-2837) are those of its cgroup. Admit refuses such pods, and resizes to such
//     limits, where cgroups cannot be made.
//   - Run makes the cgroups of all pods and of classes, and enforces what is reserved. When the requests of pods have
//     changed, it sets the shares of the class Burstable, and with memory QoS what is protected. While nothing changes,
//     it does nothing.
//   - RemoveGone removes cgroups of pods that are gone. No process is killed: a cgroup with processes stays.
//
// # What does not work
//
// A pod starts also if its cgroup cannot be made, without the limits of the pod as a whole; the exception are pods with
// limits of their own. Whatever the reason is, such as a controller that is missing or read-only, it is logged once for
// each cause, and tried again each minute. A process that may not write cgroups makes none, and logs that once. On
// systems other than Linux there are none. To make a cgroup starts no process, so a limit of processes on this process'
// own cgroup does not stop it.
//
// Containers that run below another cgroup stay there until they end.
package cgroup
