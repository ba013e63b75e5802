package runtime

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// SandboxEdits change what a sandbox is made with. The zero value changes nothing.
type SandboxEdits struct {
	// Annotations are added to those of the sandbox.
	Annotations map[string]string
	// CgroupParent replaces the cgroup parent that the runtime would choose. If empty, it does not.
	CgroupParent string
	// Resources replace the resources of the pod that the runtime is told. If nil, they do not.
	Resources *v1.ResourceRequirements
	// UserNamespace is that of a pod with hostUsers: false, which the runtime refuses without one. Other pods do not
	// use it.
	UserNamespace *UserNamespace
}

// ContainerEdits change what a container is created with. The zero value changes nothing.
type ContainerEdits struct {
	// Env are environment variables with literal values; ValueFrom is ignored. ServiceEnv and the spec win over them.
	// As with those of kubelet's device plugins, the command, the arguments and the subPathExpr of the spec may refer
	// to them by $(NAME), and the values of its variables may not.
	Env []v1.EnvVar
	// ServiceEnv are such variables of services. The spec wins over them, and the values of its variables may refer to
	// them, too.
	ServiceEnv []v1.EnvVar
	// Annotations are added to those of the container.
	Annotations map[string]string
	// Mounts are added to those of the container.
	Mounts []BindMount
	// Devices are added to the container.
	Devices []Device
	// CDIDevices are qualified names of the Container Device Interface, such as "vendor.com/gpu=0" (KEP-4009).
	CDIDevices []string
	// CPUSet and MemorySet are lists of CPUs and memory nodes, such as "0-3,7". If empty, the container may use
	// all.
	CPUSet, MemorySet string
	// NoCPUQuota means that the limit of CPU is not enforced, as for a container with CPUs of its own.
	NoCPUQuota bool
	// Resources replace those of the spec. If nil, they do not.
	Resources *v1.ResourceRequirements
	// Unified are files of cgroup v2 and what is written to them, such as "memory.high". They are added to those of the
	// container, also when it is resized.
	Unified map[string]string
	// UserNamespace is that of a pod with hostUsers: false. If nil, it is that of the sandbox.
	UserNamespace *UserNamespace
	// MemorySwap is the swap in bytes that the container may use beside its memory. If nil, it may use none. It has an
	// effect only with cgroup v2, and if the kernel limits swap (KEP-2400).
	MemorySwap *int64
}

type resizeKey struct{}

// WithResize returns a context for PodSync.EditContainer that says that the container runs, and is resized.
func WithResize(ctx context.Context) context.Context {
	return context.WithValue(ctx, resizeKey{}, true)
}

// ForResize reports whether the context is one of [WithResize].
func ForResize(ctx context.Context) bool { return ctx.Value(resizeKey{}) != nil }

// UserNamespace is the user namespace of a pod: the users and groups of the host that the users and groups in its
// containers are (KEP-127). It is read-only.
type UserNamespace struct {
	UIDs, GIDs []IDMapping
}

// IDMapping maps Length IDs in a container, from ContainerID on, to those of the host from HostID on.
type IDMapping struct {
	ContainerID, HostID, Length uint32
}

// BindMount is a path of the host that a container mounts.
type BindMount struct {
	HostPath, ContainerPath string
	ReadOnly                bool
}

// Device is a device of the host that a container can use.
type Device struct {
	HostPath, ContainerPath string
	// Permissions are letters of "rwm": read, write, make nodes.
	Permissions string
}

// Merge adds the edits of a later component. Single values of the later one win.
func (e *ContainerEdits) Merge(later ContainerEdits) {
	e.Env = append(e.Env, later.Env...)
	e.ServiceEnv = append(e.ServiceEnv, later.ServiceEnv...)
	e.Annotations = mergeMaps(e.Annotations, later.Annotations)
	e.Mounts = append(e.Mounts, later.Mounts...)
	e.Devices = append(e.Devices, later.Devices...)
	e.CDIDevices = append(e.CDIDevices, later.CDIDevices...)
	if later.CPUSet != "" {
		e.CPUSet = later.CPUSet
	}
	if later.MemorySet != "" {
		e.MemorySet = later.MemorySet
	}
	e.NoCPUQuota = e.NoCPUQuota || later.NoCPUQuota
	if later.Resources != nil {
		e.Resources = later.Resources
	}
	e.Unified = mergeMaps(e.Unified, later.Unified)
	if later.UserNamespace != nil {
		e.UserNamespace = later.UserNamespace
	}
	if later.MemorySwap != nil {
		e.MemorySwap = later.MemorySwap
	}
}

// Merge adds the edits of a later component. Single values of the later one win.
func (e *SandboxEdits) Merge(later SandboxEdits) {
	e.Annotations = mergeMaps(e.Annotations, later.Annotations)
	if later.CgroupParent != "" {
		e.CgroupParent = later.CgroupParent
	}
	if later.Resources != nil {
		e.Resources = later.Resources
	}
	if later.UserNamespace != nil {
		e.UserNamespace = later.UserNamespace
	}
}

// mergeMaps returns a map with the keys of both. It changes neither.
func mergeMaps(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	merged := make(map[string]string, len(a)+len(b))
	for k, v := range a {
		merged[k] = v
	}
	for k, v := range b {
		merged[k] = v
	}
	return merged
}
