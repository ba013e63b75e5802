// Package cgroup names the cgroups of pods as kubelet does, and removes those of pods that
// are gone.
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
// names are those of kubelet 1.36 (pkg/kubelet/cm, CgroupName and GetPodContainerName), so
// that an agent and a kubelet can take over the pods of each other.
//
// # Embedding
//
// [Pods.Parent] is for the option CgroupParent of runtime/cri, and [Pods] itself for the
// option PodCgroups of an agent:
//
//	var rt *cri.Runtime
//	cgroups, err := cgroup.New(cgroup.Options{Driver: func() string { return rt.Features().CgroupDriver }})
//	...
//	rt, err = cri.Dial(ctx, endpoint, cri.Options{CgroupParent: cgroups.Parent})
//
// # What this package does not do
//
// It makes no cgroups. The OCI runtime makes the missing ones when it starts the sandbox: runc
// and crun make directories with the driver cgroupfs, and systemd makes the slices above a
// scope. So a pod also starts on a machine where this process may not write cgroups. The
// cgroups of pods and of classes have no limits yet.
//
// Only directories of the driver cgroupfs are removed. Slices belong to systemd; it keeps
// them, without processes, until they are stopped or until the next boot.
package cgroup
