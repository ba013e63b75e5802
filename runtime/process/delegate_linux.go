package process

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// defaultRoot is the cgroup that has those of the pods.
const defaultRoot = "kubeletkit"

// delegated returns the directory of the root of version 2, in a cgroup whose controllers this process
// may enable. It is "" if there is none. own is the cgroup of this process.
//
// A cgroup with processes has no controllers for the cgroups in it, except for the root of the hierarchy. So
// pods cannot be in the cgroup of this process. Nor can it leave its cgroup to the pods: systemd starts a
// service again in the cgroup of the service, which the kernel refuses while pods have controllers there.
func delegated(mount supervise.CgroupMount, own string, root bool) string {
	dir := mount.Point
	if !root {
		// A subgroup (systemd: DelegateSubgroup=), beside which there is room.
		if dir = mount.Path(filepath.Dir(own)); dir == mount.Point {
			return ""
		}
	}
	if dir == "" || unix.Access(filepath.Join(dir, "cgroup.subtree_control"), unix.W_OK) != nil ||
		enable(dir, "+memory") != nil {
		return ""
	}
	return filepath.Join(dir, defaultRoot)
}
