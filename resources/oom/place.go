package oom

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Place returns the pod and the container that a cgroup belongs to, by the names that kubelet and the runtimes give to
// cgroups, of both drivers. The UID of the pod is "" if the runtime has given the container no cgroup of a pod, and id is "" if it is the
// cgroup of the pod itself. id is not known to be that of a container: the sandbox of the pod has one, too.
//
// With the driver systemd, a "_" in a UID cannot be told from a "-", and the UID has "-".
func Place(cgroup string) (uid types.UID, id string) {
	kubepods := false
	for part := range strings.SplitSeq(strings.Trim(cgroup, "/"), "/") {
		if uid != "" {
			return uid, containerOf(part) // what is below it, the container has made
		}
		name := strings.TrimSuffix(part, ".slice")
		if part == "kubepods" {
			kubepods = true
		} else if uid = podOf(name, name != part, kubepods); uid != "" {
			id = ""
		} else if c := containerOf(part); id == "" && isID(c) {
			id = c
		}
	}
	return uid, id
}

// podOf returns the UID in the name of a pod's cgroup: "pod<uid>" below a cgroup "kubepods", or the slice "<root>kubepods-<class>-pod<uid>".
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

// containerOf returns the ID in the name of a container's cgroup: "<id>", or "<runtime>-<id>.scope".
func containerOf(part string) string {
	scope, ok := strings.CutSuffix(part, ".scope")
	if !ok {
		return part
	}
	return scope[strings.LastIndexByte(scope, '-')+1:]
}

// isID reports whether the text can be the ID of a container, which all runtimes make of 64 hexadecimal digits.
func isID(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// memoryCgroup returns the cgroup of the memory controller in a file /proc/<pid>/cgroup; "" if it has none, or one that this process
// cannot name, since it is outside of its own namespace of cgroups.
func memoryCgroup(file string) string {
	unified := ""
	for line := range strings.Lines(file) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		path := strings.TrimSuffix(parts[2], " (deleted)")
		if strings.HasPrefix(path, "/..") {
			path = ""
		}
		switch {
		case parts[0] == "0" && parts[1] == "":
			unified = path
		case strings.Contains(","+parts[1]+",", ",memory,"):
			return path
		}
	}
	return unified
}
