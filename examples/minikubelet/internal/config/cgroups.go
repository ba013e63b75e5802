package config

import "github.com/kubeletkit/kubeletkit/resources/cgroup"

// Cgroups returns the cgroups of pods that the settings describe; nil if pods have none. The
// driver of the runtime is a function, since it is known later.
//
// The embedded runtime has none: a kubelet on the same machine would take pods below its
// kubepods for its own, and kill them.
func (s *Settings) Cgroups(driver func() string) (*cgroup.Pods, error) {
	if s.Embedded || !*s.CgroupsPerQOS {
		return nil, nil
	}
	return cgroup.New(cgroup.Options{Root: s.CgroupRoot, Driver: driver, DefaultDriver: cgroup.Driver(s.CgroupDriver)})
}
