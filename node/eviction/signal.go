package eviction

import (
	v1 "k8s.io/api/core/v1"
)

// Signal is an amount of a resource of the node that is available. The names are kubelet's.
type Signal string

// The signals. Amounts are in bytes, inodes or processes.
//
// A new signal needs its [Signal.Resource]; a source in [Machine].Read; what pods use of a new resource in [Usage],
// measured by [Usages] and compared by [Rank]; and, for a new resource, a pressure below, the growth in pace.go and the
// condition of the node in cluster/node.
const (
	// MemoryAvailable is the memory of the node minus its working set.
	MemoryAvailable Signal = "memory.available"
	// AllocatableMemoryAvailable is the limit of the cgroup of all pods minus their working set.
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	// NodeFsAvailable and NodeFsInodesFree are of the file system with the volumes and logs of pods.
	NodeFsAvailable  Signal = "nodefs.available"
	NodeFsInodesFree Signal = "nodefs.inodesFree"
	// ImageFsAvailable and ImageFsInodesFree are of the file system with the layers of images.
	ImageFsAvailable  Signal = "imagefs.available"
	ImageFsInodesFree Signal = "imagefs.inodesFree"
	// ContainerFsAvailable and ContainerFsInodesFree are of the file system with the writable layers of
	// containers. It is that of nodefs or of imagefs, see [Layout].
	ContainerFsAvailable  Signal = "containerfs.available"
	ContainerFsInodesFree Signal = "containerfs.inodesFree"
	// PIDAvailable is the number of processes that can still be started.
	PIDAvailable Signal = "pid.available"
)

// configurable are the signals that a configuration of kubelet names. Those of containers follow from the others.
var configurable = []string{
	string(MemoryAvailable), string(NodeFsAvailable), string(NodeFsInodesFree), string(ImageFsAvailable),
	string(ImageFsInodesFree), string(PIDAvailable),
}

// The resources that kubelet has no name for in the API.
const (
	resourceInodes v1.ResourceName = "inodes"
	resourcePIDs   v1.ResourceName = "pids"
)

// Valid reports whether there is such a signal.
func (s Signal) Valid() bool { return s.Resource() != "" }

// Resource returns the resource in the words of kubelet's messages: memory, ephemeral-storage, inodes or pids.
func (s Signal) Resource() v1.ResourceName {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return v1.ResourceMemory
	case NodeFsAvailable, ImageFsAvailable, ContainerFsAvailable:
		return v1.ResourceEphemeralStorage
	case NodeFsInodesFree, ImageFsInodesFree, ContainerFsInodesFree:
		return resourceInodes
	case PIDAvailable:
		return resourcePIDs
	}
	return ""
}

// Condition returns the condition of the node while the signal is below a threshold.
func (s Signal) Condition() v1.NodeConditionType {
	switch s.Resource() {
	case v1.ResourceMemory:
		return v1.NodeMemoryPressure
	case v1.ResourceEphemeralStorage, resourceInodes:
		return v1.NodeDiskPressure
	case resourcePIDs:
		return v1.NodePIDPressure
	}
	return ""
}

// The pressures, in the order in which resources are defended: a node without memory cannot do anything else.
const (
	memoryPressure = iota
	diskPressure
	pidPressure
)

// conditions are those of the pressures.
var conditions = [...]v1.NodeConditionType{
	memoryPressure: v1.NodeMemoryPressure, diskPressure: v1.NodeDiskPressure, pidPressure: v1.NodePIDPressure,
}

// pressure returns the index of the condition in conditions.
func (s Signal) pressure() int {
	for i, c := range conditions {
		if c == s.Condition() {
			return i
		}
	}
	return -1
}

// onContainerFs reports whether the signal is of the file system with the writable layers.
func (s Signal) onContainerFs() bool { return s == ContainerFsAvailable || s == ContainerFsInodesFree }

// onImageFs reports whether the signal is of the file system of images.
func (s Signal) onImageFs() bool { return s == ImageFsAvailable || s == ImageFsInodesFree }

// Layout is how the file systems of a node are used.
type Layout int

const (
	// OneDisk: volumes, logs, images and writable layers are on one file system.
	OneDisk Layout = iota
	// ImageDisk: images and writable layers are on a file system of their own.
	ImageDisk
	// SplitDisk: images are on a file system of their own, and writable layers are with the volumes and logs
	// (KEP-4191).
	SplitDisk
)
