// Package state has the file memory_manager_state in kubelet's format. Names of types and fields are kubelet's, because its checksum is
// one of their names, too.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"
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

// PodEntry has the blocks of a pod as a whole.
type PodEntry struct {
	MemoryBlocks []Block `json:"memoryBlocks,omitempty"`
}

// PodMemoryAssignments has those of pods by their UIDs.
type PodMemoryAssignments map[string]PodEntry

// Checksum is kubelet's, 0 in files of kubelets before they had one.
type Checksum uint64

// MemoryManagerCheckpointV1 is the file as kubelet writes it by default.
type MemoryManagerCheckpointV1 struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	Checksum     Checksum                   `json:"checksum"`
}

// MemoryManagerCheckpoint is the file as kubelet writes it with the feature gate PodLevelResourceManagers.
type MemoryManagerCheckpoint struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	PodEntries   PodMemoryAssignments       `json:"podEntries,omitempty"`
	Checksum     Checksum                   `json:"checksum"`
}

// File is the content of a file.
type File = MemoryManagerCheckpointV1

var (
	errChecksum = errors.New("its checksum is wrong: the file was changed or not written to its end")
	errPods     = errors.New("it has memory of pods as a whole (feature gate PodLevelResourceManagers), which is not supported")
)

// Parse returns the content of a file.
func Parse(data []byte) (*File, error) {
	f := &File{MachineState: NUMANodeMap{}, Entries: ContainerMemoryAssignments{}}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, err
	}
	sum := f.Checksum
	f.Checksum = 0
	if sum != 0 && sum != sumOf(f) {
		pods, err := ofPods(data, sum)
		if err != nil {
			return nil, err
		}
		if len(pods.PodEntries) > 0 {
			return nil, errPods
		}
	}
	if f.Entries == nil {
		f.Entries = ContainerMemoryAssignments{}
	}
	return f, check(f)
}

// ofPods returns the content of a file with memory of pods, if it has the checksum of one.
func ofPods(data []byte, sum Checksum) (*MemoryManagerCheckpoint, error) {
	f := &MemoryManagerCheckpoint{MachineState: NUMANodeMap{}, Entries: ContainerMemoryAssignments{}, PodEntries: PodMemoryAssignments{}}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, err
	}
	if f.Checksum = 0; sum != sumOf(f) {
		return nil, errChecksum
	}
	return f, nil
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

// Format returns the file with the content.
func Format(f *File) []byte {
	f.Checksum = 0
	f.Checksum = sumOf(f)
	data, _ := json.Marshal(f) // maps, slices, numbers and strings have no error
	return data
}

// sumOf returns kubelet's checksum: FNV of what k8s.io/utils/dump prints of its types.
func sumOf(f any) Checksum {
	text := dump.ForHash(f)
	text = strings.Replace(text, "MemoryManagerCheckpointV1", "MemoryManagerCheckpoint", 1)
	if before, ok := strings.CutSuffix(text, "(state.Checksum)0}"); ok {
		text = before + "(checksum.Checksum)0}"
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	return Checksum(h.Sum32())
}
