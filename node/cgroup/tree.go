package cgroup

// tree is the cgroups of a machine. Cgroups have the names that [Pods.Parent] returns. It is safe for concurrent use.
type tree interface {
	// usable returns why this process cannot make cgroups with the driver, or nil. It costs next to nothing.
	usable(driver Driver) error
	// missing are controllers that limits need and that are not there.
	missing() []string
	// unified reports whether it is cgroup v2.
	unified() bool
	exists(cgroup string) bool
	// make makes a cgroup and those above it as far as they are missing, and sets the resources.
	make(driver Driver, cgroup string, r Resources) error
	// set sets resources of a cgroup that exists.
	set(driver Driver, cgroup string, r Resources) error
	// read returns CPU and memory of a cgroup, complete, see [Resources.complete]. What the kernel makes of the
	// settings in set, which it rounds, is returned as it is there.
	read(cgroup string, set Resources) (Resources, error)
	memoryUsage(cgroup string) (int64, error)
	// pageSizes are the sizes of huge pages of the machine, as in "2MB", as far as cgroups can limit them.
	pageSizes() []string
	// cpus is the list of CPUs; "" if it is not known.
	cpus() string
	// moveSelf moves this process to a cgroup unless it is in it, moveRoot all processes of the root cgroup but the
	// first one and those of the kernel. They make the cgroup.
	moveSelf(cgroup string) error
	moveRoot(cgroup string) error
}
