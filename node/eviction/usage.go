package eviction

import (
	v1 "k8s.io/api/core/v1"
)

// Pod is a pod of the node with what it uses.
type Pod struct {
	// Pod is shared and read-only.
	Pod *v1.Pod
	// Ending means that the pod is to end, for any reason, and something of it may still run.
	Ending bool
	Usage  Usage
}

// Usage is what a pod uses. A nil amount is unknown.
type Usage struct {
	// Memory is the working set in bytes.
	Memory *int64
	// Processes is the number of processes.
	Processes *int64
	// Logs are those of containers, Volumes the local ones (emptyDir, hostPath, configMap, secret, downwardAPI,
	// projected), and Writable the writable layers of containers.
	Logs, Volumes, Writable DiskUsage
	// Containers are those of the pod, for the message.
	Containers []ContainerUsage
}

// DiskUsage is the size of files. A nil amount is unknown.
type DiskUsage struct{ Bytes, Inodes *int64 }

// ContainerUsage is what a container uses. A nil amount is unknown.
type ContainerUsage struct {
	Name string
	// Memory is the working set in bytes, Disk the logs and the writable layer in bytes.
	Memory, Disk *int64
}

// of returns what the pod uses of the signal's resource, in the file system of the signal.
func (u *Usage) of(s Signal, layout Layout) (n int64, known bool) {
	switch s.Resource() {
	case v1.ResourceMemory:
		return amount(u.Memory)
	case resourcePIDs:
		return amount(u.Processes)
	case v1.ResourceEphemeralStorage, resourceInodes:
	default:
		return 0, false
	}
	for _, part := range u.parts(s, layout) {
		a := part.Bytes
		if s.Resource() == resourceInodes {
			a = part.Inodes
		}
		if v, ok := amount(a); ok {
			n, known = min(n, maxAmount-v)+v, true
		}
	}
	return n, known
}

// parts returns the parts of the usage that are in the file system of the signal (kubelet: buildSignalToRankFunc).
func (u *Usage) parts(s Signal, layout Layout) []DiskUsage {
	switch {
	case layout == OneDisk:
		return []DiskUsage{u.Writable, u.Logs, u.Volumes}
	case layout == ImageDisk && (s.onImageFs() || s.onContainerFs()):
		return []DiskUsage{u.Writable}
	case layout == ImageDisk:
		return []DiskUsage{u.Logs, u.Volumes}
	case s.onImageFs(): // only images are there: the end of a pod frees its image
		return nil
	default:
		return []DiskUsage{u.Writable, u.Logs, u.Volumes}
	}
}

// amount returns an amount that may be unknown. One below 0 is 0.
func amount(p *int64) (int64, bool) {
	if p == nil {
		return 0, false
	}
	return max(0, *p), true
}
