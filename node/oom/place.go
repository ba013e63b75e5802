package oom

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/node/internal/cgroupfs"
)

// Place returns the pod and the container that a cgroup belongs to, by the names that kubelet and the runtimes give to
// cgroups, of both drivers. The UID of the pod is "" if the runtime has given the container no cgroup of a pod, and id
// is "" if it is the cgroup of the pod itself. id is not known to be that of a container: the sandbox of the pod has
// one, too.
//
// With the driver systemd, a "_" in a UID cannot be told from a "-", and the UID has "-".
func Place(cgroup string) (uid types.UID, id string) {
	kubepods := false
	for part := range strings.SplitSeq(strings.Trim(cgroup, "/"), "/") {
		if uid != "" {
			return uid, cgroupfs.ContainerOf(part) // what is below it, the container has made
		}
		name := strings.TrimSuffix(part, ".slice")
		if part == "kubepods" {
			kubepods = true
		} else if uid = podOf(name, name != part, kubepods); uid != "" {
			id = ""
		} else if c := cgroupfs.ContainerOf(part); id == "" && isID(c) {
			id = c
		}
	}
	return uid, id
}

// podOf returns the UID in the name of a pod's cgroup: "pod<uid>" below a cgroup "kubepods", or the slice
// "<root>kubepods-<class>-pod<uid>".
func podOf(name string, slice, kubepods bool) types.UID {
	if !slice {
		uid, ok := strings.CutPrefix(name, "pod")
		if !ok || !kubepods {
			return ""
		}
		return types.UID(uid)
	}
	_, name, ok := cutLast(name, "kubepods-")
	if !ok {
		return ""
	}
	name = strings.TrimPrefix(strings.TrimPrefix(name, "burstable-"), "besteffort-")
	uid, ok := strings.CutPrefix(name, "pod")
	if !ok {
		return ""
	}
	return types.UID(strings.ReplaceAll(uid, "_", "-"))
}

// isID reports whether the text can be the ID of a container, which all runtimes make of 64 hexadecimal digits.
func isID(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}
