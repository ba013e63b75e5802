// Package state has the file memory_manager_state in kubelet's format. Names of types and fields are kubelet's, because
// its checksum is one of their names, too.
package state

import (
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/internal/checkpoint"
)

// MemoryTable has the amounts of one resource on one node, in bytes.
type MemoryTable struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	// Allocatable is the total without what is reserved for the system and, for memory, without huge pages.
	Allocatable uint64 `json:"allocatable"`
	// Reserved is what containers have. Free and Reserved are Allocatable together.
	Reserved uint64 `json:"reserved"`
	Free     uint64 `json:"free"`
}

// NUMANodeState is the state of one node.
type NUMANodeState struct {
	// NumberOfAssignments is the number of blocks that have the node.
	NumberOfAssignments int                              `json:"numberOfAssignments"`
	MemoryMap           map[v1.ResourceName]*MemoryTable `json:"memoryMap"`
	// Cells are the nodes of the group that the node is in, itself too.
	Cells []int `json:"cells"`
}

// NUMANodeMap has the nodes by their IDs.
type NUMANodeMap map[int]*NUMANodeState

// Block is an amount of a resource, in bytes, on some nodes.
type Block struct {
	NUMAAffinity []int           `json:"numaAffinity"`
	Type         v1.ResourceName `json:"type"`
	Size         uint64          `json:"size"`
}

// ContainerMemoryAssignments has the blocks of containers, by the UID of the pod and the name of the container.
type ContainerMemoryAssignments map[string]map[string][]Block

// PodEntry has the blocks of a pod with resources as a whole. Those of its containers are parts of them.
type PodEntry struct {
	MemoryBlocks []Block `json:"memoryBlocks,omitempty"`
}

// PodMemoryAssignments has these pods by their UIDs.
type PodMemoryAssignments map[string]PodEntry

// File is the content of a file, as kubelet 1.36 writes it by default; later versions read it, too. Its checksum is 0
// in files of kubelets before they had one, and in the content of files of kubelet since 1.37.
type File struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	Checksum     checkpoint.Checksum        `json:"checksum"`
}

// fileV3 is that of kubelet since 1.37: what earlier versions read, and all of it as a text.
type fileV3 struct {
	*File
	checkpoint.Wrapped
}

// content is the text of fileV3.
type content struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	PodEntries   PodMemoryAssignments       `json:"podEntries,omitempty"`
}

const (
	kind = "state.MemoryManagerCheckpoint"
	// noPods is what kubelet 1.36 has besides with the feature gate PodLevelResourceManagers, for pods with memory as a
	// whole.
	noPods = "PodEntries:(state.PodMemoryAssignments)map[] "
)

var errPods = errors.New("it has memory of pods as a whole (feature gate PodLevelResourceManagers) in the form of " +
	"kubelet 1.36, which is not supported")

// Parse returns the content of a file, and its pods with memory as a whole, which are those of kubelet 1.37 or later.
func Parse(data []byte) (*File, PodMemoryAssignments, error) {
	var in struct {
		File
		PodEntries PodMemoryAssignments `json:"podEntries"`
	}
	in.File = File{MachineState: NUMANodeMap{}, Entries: ContainerMemoryAssignments{}}
	data, wrapped, err := checkpoint.Unwrap(data)
	if err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, nil, err
	}
	if len(in.PodEntries) > 0 && !wrapped {
		return nil, nil, errPods
	}
	f := &in.File
	sum := f.Checksum
	f.Checksum = 0
	if sum != 0 && sum != checkpoint.Sum(f, kind, "") && sum != checkpoint.Sum(f, kind, noPods) {
		return nil, nil, checkpoint.ErrChecksum
	}
	if f.Entries == nil {
		f.Entries = ContainerMemoryAssignments{}
	}
	return f, in.PodEntries, check(f)
}

// check reports values that are missing.
func check(f *File) error {
	for id, n := range f.MachineState {
		if n == nil {
			return fmt.Errorf("it has nothing of node %d", id)
		}
		for name, t := range n.MemoryMap {
			if t == nil {
				return fmt.Errorf("it has nothing of %s on node %d", name, id)
			}
		}
	}
	return nil
}

// Format returns the file with the content: in the form of kubelet 1.36, with pods in that of 1.37.
func Format(f *File, pods PodMemoryAssignments) []byte {
	f.Checksum = 0
	f.Checksum = checkpoint.Sum(f, kind, "")
	data, _ := json.Marshal(f) // maps, slices, numbers and strings have no error
	if len(pods) == 0 {
		return data
	}
	text, _ := json.Marshal(content{f.PolicyName, f.MachineState, f.Entries, pods})
	data, _ = json.Marshal(fileV3{f, checkpoint.Wrap(text)})
	return data
}
