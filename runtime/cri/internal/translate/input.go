package translate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Node is what holds for all pods of a node. The zero value is a machine with
// cgroup v1, without SELinux, swap control and huge pages.
type Node struct {
	// MemoryCapacity of the machine in bytes, the base of the OOM scores of Burstable
	// pods. 0: the allocatable memory of [runtime.Host], and without that no credit
	// for requested memory.
	MemoryCapacity int64
	// HugepageSizes that the kernel offers, as cgroup files spell them: "2MB", "1GB".
	// Each is limited in every container, to 0 where the spec asks for none.
	HugepageSizes []string
	// CgroupV2 says that the unified cgroup hierarchy is in use.
	CgroupV2 bool
	// SwapControl says that the memory controller limits swap. Containers then get none.
	SwapControl bool
	// KillProcessesSingly leaves it to the kernel which process of a container dies
	// when its memory is used up; by default it is all of them (memory.oom.group,
	// cgroup v2 only). It is kubelet's singleProcessOOMKill.
	KillProcessesSingly bool
	// NoCPUQuota leaves CPU limits unenforced (kubelet's cpuCFSQuota: false).
	NoCPUQuota bool
	// CPUPeriod over which a CPU limit is enforced. Default: 100 ms, the kernel's.
	CPUPeriod time.Duration
	// SELinux says that SELinux is enabled, so that mounts may need relabelling.
	SELinux bool
	// SeccompProfileRoot is the directory that localhost seccomp profiles are relative
	// to, as in /var/lib/kubelet/seccomp.
	SeccompProfileRoot string
	// SeccompDefault makes RuntimeDefault the seccomp profile of containers that do
	// not name one. Default: Unconfined.
	SeccompDefault bool
	// MaskedPaths are hidden from containers beside the usual ones, unless procMount
	// is Unmasked. kubelet has those of /sys/devices/system/cpu/cpu*/thermal_throttle
	// here that exist.
	MaskedPaths []string
}

// Pod is a pod to translate, and what is known of it.
type Pod struct {
	// Spec is the pod, defaulted and validated. Required.
	Spec *v1.Pod
	// Host is what the spec's downward references and DNS need. Required.
	Host *runtime.Host
	// Node is required.
	Node *Node
	// Dir is the pod's directory on the host; it is passed on to SubPath.
	Dir string
	// ResolvConf is what stands in the file of Host.ResolvConf.
	ResolvConf ResolvConf
	// CgroupParent of the pod, in the form that the runtime's cgroup driver wants.
	// Default: the runtime chooses.
	CgroupParent string
	// Users maps the users of a pod with hostUsers: false. Such pods are refused
	// without it.
	Users *criv1.UserNamespace
}

// Container is a container to translate, and what is known of it.
type Container struct {
	Pod *Pod
	// Spec is the container; an ephemeral one as what it has in common with the
	// others.
	Spec *v1.Container
	Kind runtime.ContainerKind
	// RestartCount is how many instances there were before this one.
	RestartCount int32
	// TargetID is the ID, without its type, of the container whose processes an
	// ephemeral container is to see (targetContainerName); "" if there is none.
	TargetID string
	// PodIPs as the runtime reports them. With the host's network they may be left
	// out; those of the host are taken.
	PodIPs []string
	Image  Image
	// Volumes that stand ready, by their name in the pod's spec.
	Volumes map[string]runtime.Volume
	// SubPath makes a sub-path ready; nil refuses mounts with one.
	SubPath func(ctx context.Context, req runtime.SubPath) (string, error)
	// RecursiveReadOnly says that the runtime handler of the pod can make mounts
	// read-only with all below them.
	RecursiveReadOnly bool
	// HostsPath is where the file of [HostsFile] was put down, "" to mount none. It is
	// mounted where [NeedsHostsFile] says so.
	HostsPath string
	// TerminationLogPath is an empty file, writable for all, that this instance alone
	// leaves its termination message in. "" mounts none, and neither does a container
	// without terminationMessagePath.
	TerminationLogPath string
	// Objects has what environment variables refer to; nil knows of nothing.
	Objects runtime.Objects
	Extras  Extras
}

// Image is what is known of a container's image.
type Image struct {
	// Ref is what the runtime knows the image by: what its pull returned.
	Ref string
	// UID and Username are the image's user, one at most; neither means root.
	UID      *int64
	Username string
}

// ImageOf returns what is known of an image that the runtime has.
func ImageOf(ref string, img *criv1.Image) Image {
	switch {
	case img.GetUid() != nil:
		uid := img.GetUid().GetValue()
		return Image{Ref: ref, UID: &uid}
	default:
		return Image{Ref: ref, Username: img.GetUsername()}
	}
}

// user returns the image's user, one of both set; root if it does not say.
func (i Image) user() (*int64, string) {
	if i.UID == nil && i.Username == "" {
		return new(int64), ""
	}
	return i.UID, i.Username
}

// Extras is what others than the spec add to a container, such as device
// plugins. It becomes part of the configuration as it is, mounts with the user
// mappings that they have. Extra variables come before those of the spec, extra
// mounts too; an extra annotation does not replace one of the container's own.
type Extras struct {
	Devices     []*criv1.Device
	CDIDevices  []*criv1.CDIDevice
	Mounts      []*criv1.Mount
	Envs        []*criv1.KeyValue
	Annotations map[string]string
	// Groups are further supplemental groups, as some persistent volumes ask for.
	Groups []int64
}

// Warning is something that a pod asked for and does not get.
type Warning struct {
	// Reason is one CamelCase word, that of kubelet's event where there is one.
	Reason string
	// Message is for people.
	Message string
}

// RuntimeHandler returns the runtime handler for the pod's runtime class: what
// lookup says, or without a lookup the name of the class itself. Without a class
// it is "", the runtime's default.
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
