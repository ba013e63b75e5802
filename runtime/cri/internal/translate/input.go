package translate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Node has the facts and settings that apply to all pods of a node. The zero value is a
// machine with cgroup v1, without SELinux, swap control and huge pages.
type Node struct {
	// MemoryCapacity is the memory of the machine in bytes, the base of the OOM scores of
	// Burstable pods. 0 means the allocatable memory of [runtime.Host]; without either,
	// requested memory does not lower the OOM score.
	MemoryCapacity int64
	// HugepageSizes are the page sizes of the kernel in the notation of cgroup files, such
	// as "2MB" and "1GB". Every container gets a limit for each, 0 unless its spec
	// requests some.
	HugepageSizes []string
	// CgroupV2 is true if the unified cgroup hierarchy is in use.
	CgroupV2 bool
	// SwapControl is true if the memory controller limits swap. Containers then get none, or that of their edits.
	SwapControl bool
	// KillProcessesSingly makes the kernel kill one process of a container that has
	// exceeded its memory limit. Otherwise it kills all (memory.oom.group, cgroup v2
	// only). It is kubelet's singleProcessOOMKill.
	KillProcessesSingly bool
	// NoCPUQuota disables the enforcement of CPU limits (kubelet's cpuCFSQuota: false).
	NoCPUQuota bool
	// CPUPeriod is the period over which a CPU limit is enforced. Default: 100 ms, as in
	// the kernel.
	CPUPeriod time.Duration
	// SELinux is true if SELinux is enabled, so that mounts may need relabelling.
	SELinux bool
	// SeccompProfileRoot is the directory of localhost seccomp profiles, as in
	// /var/lib/kubelet/seccomp.
	SeccompProfileRoot string
	// SeccompDefault makes RuntimeDefault the seccomp profile of containers without a
	// profile. Default: Unconfined.
	SeccompDefault bool
	// PodSysctls are kernel parameters of each pod that has a namespace of its own for them, and does not set them.
	PodSysctls map[string]string
	// MaskedPaths are additional paths to hide from containers, unless procMount is
	// Unmasked. In kubelet they are the existing paths of
	// /sys/devices/system/cpu/cpu*/thermal_throttle.
	MaskedPaths []string
}

// Pod is a pod to convert, with its environment.
type Pod struct {
	// Spec is the pod, defaulted and validated. Required.
	Spec *v1.Pod
	// Host is for downward API references and DNS. Required.
	Host *runtime.Host
	// Node is required.
	Node *Node
	// Dir is the pod's directory on the host, for SubPath.
	Dir string
	// ResolvConf is the content of the file Host.ResolvConf.
	ResolvConf ResolvConf
	// CgroupParent is the parent cgroup of the pod, in the form of the runtime's cgroup
	// driver. Default: the runtime chooses.
	CgroupParent string
	// Edits are changes of the sandbox by other components. Their cgroup parent replaces CgroupParent, and an
	// annotation does not replace one of the pod. A pod with hostUsers: false is refused without their user namespace.
	Edits runtime.SandboxEdits
	// Groups are supplemental groups of all containers beside those of the spec, such as those of
	// persistent volumes.
	Groups []int64
	// HostProcesses is [runtime.Features].HostProcesses.
	HostProcesses bool
}

// Container is a container to convert, with its environment.
type Container struct {
	Pod *Pod
	// Spec is the container, or the common fields of an ephemeral container.
	Spec *v1.Container
	Kind podspec.ContainerKind
	// RestartCount is the number of earlier instances.
	RestartCount int32
	// Backoff is recorded with the instance if it is not 0.
	Backoff time.Duration
	// TargetID is the ID, without its type, of the container whose PID namespace an
	// ephemeral container joins (targetContainerName); "" if there is none.
	TargetID string
	// PodIPs are the addresses of the pod as the runtime reports them. With the host's
	// network they may be empty; the addresses of the host are used then.
	PodIPs []string
	Image  Image
	// Volumes that are set up, by their name in the pod's spec.
	Volumes map[string]runtime.Volume
	// ImageVolumes has the images of the volumes of the type image, by their name in the spec.
	ImageVolumes map[string]*criv1.ImageSpec
	// SubPath prepares a sub-path. If nil, mounts with a sub-path are refused.
	SubPath func(ctx context.Context, req runtime.SubPath) (string, error)
	// RecursiveReadOnly is true if the runtime handler of the pod supports recursively
	// read-only mounts.
	RecursiveReadOnly bool
	// HostsPath is the path of the file with the content of [HostsFile]. It is mounted if
	// it is not empty and [NeedsHostsFile] returns true.
	HostsPath string
	// TerminationLogPath is an empty file for the termination message of this instance,
	// writable for all users. It is mounted if it is not empty and the container has a
	// terminationMessagePath.
	TerminationLogPath string
	// Objects has the objects that environment variables refer to; nil has none.
	Objects runtime.Objects
	// Edits are changes by other components, such as device plugins. Their variables and mounts come before those of
	// the spec, see [runtime.ContainerEdits]. An annotation does not replace one of the container. Their user namespace
	// replaces that of the pod.
	Edits runtime.ContainerEdits
}

// Image is the metadata of a container's image.
type Image struct {
	// Ref is the runtime's reference to the image, the result of its pull.
	Ref string
	// UID and Username are the image's user, at most one of them; neither means root.
	UID      *int64
	Username string
}

// ImageOf returns the metadata of an image that the runtime has.
func ImageOf(ref string, img *criv1.Image) Image {
	switch {
	case img.GetUid() != nil:
		uid := img.GetUid().GetValue()
		return Image{Ref: ref, UID: &uid}
	default:
		return Image{Ref: ref, Username: img.GetUsername()}
	}
}

// user returns the image's user, or root. Exactly one of the results is set.
func (i Image) user() (*int64, string) {
	if i.UID == nil && i.Username == "" {
		return new(int64), ""
	}
	return i.UID, i.Username
}

// Warning is about something that a pod requests and does not get.
type Warning struct {
	// Reason is one CamelCase word, the reason of kubelet's event if there is one.
	Reason string
	// Message is for people.
	Message string
}

// RuntimeHandler returns the runtime handler for the pod's runtime class: the result of
// lookup, or the name of the class if lookup is nil. For a pod without a class it is "",
// the runtime's default.
func RuntimeHandler(pod *v1.Pod, lookup func(class string) (handler string, err error)) (string, error) {
	switch class := pod.Spec.RuntimeClassName; {
	case class == nil || *class == "":
		return "", nil
	case lookup == nil:
		return *class, nil
	default:
		return lookup(*class)
	}
}
