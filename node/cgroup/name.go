package cgroup

import (
	"errors"
	"fmt"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Driver is how a runtime manages cgroups.
type Driver string

// The drivers, in the words of kubelet's cgroupDriver.
const (
	Cgroupfs Driver = "cgroupfs" // the runtime makes directories
	Systemd  Driver = "systemd"  // the runtime requests units of systemd
)

const (
	// nodeCgroup has the cgroups of all pods (kubelet: defaultNodeAllocatableCgroupName).
	nodeCgroup = "kubepods"
	// podPrefix begins the name of the cgroup of a pod, before its UID.
	podPrefix = "pod"
	// slice ends the name of a unit of systemd that holds others.
	slice = ".slice"
)

// classes returns the names of the cgroups of the classes below that of the node. Pods of
// the class Guaranteed are directly below the node's, which is "".
func classes() []string { return []string{"", "burstable", "besteffort"} }

// classOf returns the cgroup of the pod's class below that of the node, one of classes.
func classOf(pod *v1.Pod) string {
	if class := podspec.QOSClass(pod); class != v1.PodQOSGuaranteed {
		return strings.ToLower(string(class))
	}
	return ""
}

// parseRoot splits the path of a cgroup.
func parseRoot(root string) ([]string, error) {
	if root == "" || root == "/" {
		return nil, nil
	}
	parts := strings.Split(strings.Trim(root, "/"), "/")
	for _, part := range parts {
		switch {
		case part == "" || part == "." || part == "..":
			return nil, fmt.Errorf("cgroup %q: must be a path without empty elements and dots", root)
		case strings.HasSuffix(part, slice):
			return nil,
				fmt.Errorf("cgroup %q: must be a path as of the driver cgroupfs, such as /a/b for the slice a-b.slice",
					root)
		case strings.ContainsAny(part, "\x00\n:"):
			return nil, fmt.Errorf("cgroup %q: %q cannot be the name of a cgroup", root, part)
		}
	}
	return parts, nil
}

// path returns the name of a cgroup in the form that the driver expects: a path that begins
// with "/", also for systemd.
func (d Driver) path(parts []string) string {
	if d != Systemd {
		return "/" + path.Join(parts...)
	}
	// Each unit repeats the names of those above it. In names "-" separates them, so systemd
	// gets "_" for a "-" in one of them.
	out, unit := "", ""
	for _, part := range parts {
		if unit != "" {
			unit += "-"
		}
		unit += strings.ReplaceAll(part, "-", "_")
		out += "/" + unit + slice
	}
	return out
}

// classCgroup returns the elements of the cgroup of a class, or with "" of all pods.
func classCgroup(root []string, class string) []string {
	parts := append(append(make([]string, 0, len(root)+3), root...), nodeCgroup)
	if class != "" {
		parts = append(parts, class)
	}
	return parts
}

// podCgroup returns the elements of the cgroup of a pod.
func podCgroup(root []string, class string, uid types.UID) []string {
	return append(classCgroup(root, class), podPrefix+string(uid))
}

// podName returns the name of the directory of a pod's cgroup in that of its class, without its UID: what is before and
// after it.
func (d Driver) podName(root []string, class string) (before, after string) {
	if d != Systemd {
		return podPrefix, ""
	}
	unit := path.Base(d.path(classCgroup(root, class)))
	return strings.TrimSuffix(unit, slice) + "-" + podPrefix, slice
}

// uidOf returns the UID of the pod whose cgroup has the name, or "".
func (d Driver) uidOf(name, before, after string) types.UID {
	uid, ok := strings.CutPrefix(name, before)
	if !ok {
		return ""
	}
	if uid, ok = strings.CutSuffix(uid, after); !ok {
		return ""
	}
	if d == Systemd {
		uid = strings.ReplaceAll(uid, "_", "-")
	}
	if !podspec.IsFileName(types.UID(uid)) {
		return ""
	}
	return types.UID(uid)
}

// errDriver means that a driver is neither [Cgroupfs] nor [Systemd].
var errDriver = errors.New("the driver of cgroups must be cgroupfs or systemd")
