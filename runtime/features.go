package runtime

// Features are abilities and settings of a runtime in which runtimes differ.
type Features struct {
	// SupplementalGroupsPolicy means that the runtime can leave out the groups that the image
	// gives to the user of a container (KEP-3619).
	SupplementalGroupsPolicy bool
	// CgroupDriver is how the runtime manages cgroups, "cgroupfs" or "systemd"; "" if it does
	// not say.
	CgroupDriver string
}

// FeatureReporter is an optional interface of a [Runtime], found with [Optional]. A runtime
// without it has no [Features].
type FeatureReporter interface {
	// Features returns what the runtime has reported to the last successful
	// [Checker.Check]; before the first, the zero value. It does not block, and is safe for
	// concurrent use.
	Features() Features
}
