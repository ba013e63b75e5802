package runtime

import "context"

// Features are the name and version of a runtime, and abilities and settings in which
// runtimes differ.
type Features struct {
	// Name and Version are those of the runtime, such as "containerd" and "v2.1.4"; empty if
	// it has not reported them.
	Name, Version string
	// SupplementalGroupsPolicy means that the runtime can leave out the groups that the image
	// gives to the user of a container (KEP-3619).
	SupplementalGroupsPolicy bool
	// MountOptions means that the runtime makes the volume mounts of containers with their bindMountOptions.
	MountOptions bool
	// CgroupDriver is how the runtime manages cgroups, "cgroupfs" or "systemd"; "" if it does
	// not say.
	CgroupDriver string
	// HostProcesses means that containers are processes of the machine, with its files and its network, as those of
	// runtime/process: an image is a name only, of which nothing is pulled, and a pod has no DNS configuration.
	HostProcesses bool
	// Handlers are the handlers that runtime classes can name, in the order of their names.
	// The slice must not be changed.
	Handlers []Handler
}

// ConditionHostProcesses is the type of the condition by which a CRI runtime reports [Features].HostProcesses.
const ConditionHostProcesses = "HostProcesses"

// Handler is a handler of a runtime, such as an OCI runtime.
type Handler struct {
	// Name is empty for the default handler.
	Name string
	// RecursiveReadOnlyMounts means that it can make mounts recursively read-only (KEP-3857).
	RecursiveReadOnlyMounts bool
	// UserNamespaces means that it supports pods with user namespaces (KEP-127).
	UserNamespaces bool
}

// FeatureReporter is an optional interface of a [Runtime], found with [Optional]. A runtime
// without it has no [Features].
type FeatureReporter interface {
	// Features returns what the runtime has reported to the last successful
	// [Checker.Check]; before the first, the zero value. It does not block, and is safe for
	// concurrent use.
	Features() Features
}

// PodCIDRSetter is an optional interface of a [Runtime], found with [Optional]. A runtime
// without it has the addresses of pods from its own configuration.
type PodCIDRSetter interface {
	// SetPodCIDR hands the runtime the addresses from which pods on this node have theirs, as
	// in "10.1.0.0/24"; two of different families are separated by a comma.
	SetPodCIDR(ctx context.Context, cidr string) error
}
