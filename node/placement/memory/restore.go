package memory

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/node/internal/checkpoint"
	"github.com/kubeletkit/kubeletkit/node/placement/memory/internal/state"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

const (
	// FileName is kubelet's name of the state, in its root directory.
	FileName = "memory_manager_state"
	// policy and policyNone are the names of policies in states.
	policy, policyNone = "Static", "None"
)

// StateError means that the state cannot be used: the file is corrupt, of another policy, or of other amounts of memory
// or reservations.
type StateError struct {
	Path string
	Err  error
	// Pods are those that hold memory by the state. There is none if the file cannot be read: then it is not known
	// which pods do.
	Pods []types.UID
	// Hint is [Options.ResetHint].
	Hint string
}

func (e *StateError) Error() string {
	text := fmt.Sprintf("memory: the state %s cannot be used: %v: drain the node and remove the file, or have it reset",
		e.Path, e.Err)
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

func (e *StateError) Unwrap() error { return e.Err }

// Restore reads the state, unless it is read already. Join does, too; without it, the first allocation needs it.
//
// With a [*StateError] the manager is suspended until the pods of StateError.Pods have ended: it can be used, and does
// what the package documentation says. With another error, of the disk, no container with memory can be created until
// Restore succeeds.
func (m *Manager) Restore() error { return m.held.Restore() }

func (m *Manager) restore() error {
	s, err := m.read()
	problem := (*StateError)(nil)
	if err != nil && !errors.As(err, &problem) {
		return err
	}
	if problem != nil {
		problem.Hint = m.opts.ResetHint
		m.held.Unfit(problem, problem.Pods, true)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machine = s
	for uid := range s.entries {
		if !m.held.Earlier(types.UID(uid)) {
			s.dropPod(uid)
		}
	}
	if !m.opts.Leave {
		m.held.Changed() // kubelet writes it at each start, too
	}
	return nil
}

// StaticLeft reports whether a state of the policy Static is left, or one that cannot be read. An agent with kubelet's
// policy None has a manager with [Options.Leave] then. It changes nothing. The error is that of the disk.
func StaticLeft(path string) (bool, error) {
	f, _, err := readState(&safefile.Reader{}, path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil && !errors.As(err, new(*StateError)):
		return false, err
	}
	return err != nil || f.PolicyName != policyNone, nil
}

// holders returns the pods of the file that are not gone.
func (m *Manager) holders(f *state.File) (pods []types.UID) {
	for _, uid := range slices.Sorted(maps.Keys(f.Entries)) {
		if !m.held.Gone(types.UID(uid)) {
			pods = append(pods, types.UID(uid))
		}
	}
	return pods
}

// readState returns the content of the file, and its pods with memory as a whole. It fails with [os.ErrNotExist] and a
// [*StateError].
func readState(r *safefile.Reader, path string) (f *state.File, pods state.PodMemoryAssignments, _ error) {
	err := checkpoint.Read(r, path, checkpoint.MaxSize, func(data []byte) (err error) {
		f, pods, err = state.Parse(data)
		return err
	})
	switch damaged := (*checkpoint.DamagedError)(nil); {
	case errors.As(err, &damaged):
		return nil, nil, &StateError{Path: path, Err: damaged.Err}
	case err != nil:
		return nil, nil, fmt.Errorf("memory: reading the state: %w", err)
	}
	return f, pods, nil
}

// read returns the machine state of the file, or an empty one if there is none, no pod holds memory, or with a
// [*StateError].
func (m *Manager) read() (*machineState, error) {
	f, pods, err := readState(&m.held.Reader, m.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && m.opts.Leave && f.PolicyName == policyNone {
		return m.empty(), nil
	}
	if err != nil {
		return m.empty(), err
	}
	left := m.holders(f)
	switch {
	case len(left) > 0 && m.opts.Leave:
		return m.empty(), &StateError{Path: m.path, Pods: left,
			Err: errors.New("pods hold memory by the policy Static, and the policy is None")}
	case m.opts.Leave:
		m.held.Unfit(nil, nil, false)
		return m.empty(), nil
	case len(left) == 0:
		return m.empty(), nil
	}
	if f.PolicyName != policy {
		return m.empty(), &StateError{Path: m.path, Err: fmt.Errorf("it is of the policy %q, not %q",
			f.PolicyName, policy),
			Pods: left}
	}
	s, err := m.recount(f, pods)
	if err != nil {
		return m.empty(), &StateError{Path: m.path, Err: err, Pods: left}
	}
	for _, uid := range slices.Sorted(maps.Keys(s.entries)) {
		if !slices.Contains(left, types.UID(uid)) {
			m.node.Logger().Info("A pod that is gone held memory", "pod", uid)
			s.dropPod(uid)
		}
	}
	return s, nil
}

// recount returns the machine state of the entries of the file, if it gives the nodes of the file on this machine. A
// pod without containers has nothing as a whole, either, as in kubelet.
func (m *Manager) recount(f *state.File, pods state.PodMemoryAssignments) (*machineState, error) {
	s := m.empty()
	for _, uid := range slices.Sorted(maps.Keys(f.Entries)) {
		whole := pods[uid]
		ofPod := len(whole.MemoryBlocks) > 0
		if ofPod {
			s.pods[uid] = whole
		}
		for _, block := range whole.MemoryBlocks {
			if err := s.check(block); err != nil {
				return nil, fmt.Errorf("pod %s as a whole: %w", uid, err)
			}
			slices.Sort(block.NUMAAffinity)
			s.take(block, block.Size)
		}
		for _, c := range slices.Sorted(maps.Keys(f.Entries[uid])) {
			for _, block := range f.Entries[uid][c] {
				if err := s.check(block); err != nil {
					return nil, fmt.Errorf("container %q of pod %s: %w", c, uid, err)
				}
				slices.Sort(block.NUMAAffinity)
				if !ofPod {
					s.take(block, block.Size)
				}
			}
		}
	}
	s.entries = f.Entries
	if len(f.MachineState) != len(s.nodes) {
		return nil, fmt.Errorf("it has %d NUMA nodes, the machine %d", len(f.MachineState), len(s.nodes))
	}
	other := &machineState{nodes: f.MachineState}
	for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
		if err := s.same(id, other); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// check reports a node or a resource of a block that the machine does not have.
func (s *machineState) check(block state.Block) error {
	if len(block.NUMAAffinity) == 0 || numa.Of(block.NUMAAffinity...).Len() != len(block.NUMAAffinity) {
		return fmt.Errorf("it has memory on the NUMA nodes %v", block.NUMAAffinity)
	}
	for _, id := range block.NUMAAffinity {
		if s.nodes[id] == nil {
			return fmt.Errorf("it has memory on NUMA node %d, which the machine does not have", id)
		}
		if s.nodes[id].MemoryMap[block.Type] == nil {
			return fmt.Errorf("it has %s on NUMA node %d, which has none", block.Type, id)
		}
	}
	return nil
}

// same compares a node with that of a file, as kubelet does: how the blocks of a group lie on its nodes does not count.
func (s *machineState) same(id int, file *machineState) error {
	n, other := s.nodes[id], file.nodes[id]
	switch group := numa.Of(n.Cells...); {
	case other == nil:
		return fmt.Errorf("it has no NUMA node %d", id)
	case n.NumberOfAssignments != other.NumberOfAssignments:
		return fmt.Errorf("it counts %d blocks on NUMA node %d, where containers have %d", other.NumberOfAssignments,
			id, n.NumberOfAssignments)
	case group != numa.Of(other.Cells...) || group.Len() != len(other.Cells):
		return fmt.Errorf("it has NUMA node %d in the group %v, in which containers have %v", id, other.Cells, n.Cells)
	case len(n.MemoryMap) != len(other.MemoryMap):
		return fmt.Errorf("it has %d resources on NUMA node %d, the machine %d", len(other.MemoryMap),
			id, len(n.MemoryMap))
	}
	for _, name := range slices.Sorted(maps.Keys(n.MemoryMap)) {
		t, o := *n.MemoryMap[name], other.MemoryMap[name]
		switch {
		case o == nil:
			return fmt.Errorf("it has no %s on NUMA node %d", name, id)
		case t.TotalMemSize != o.TotalMemSize:
			return fmt.Errorf("it has %d bytes of %s on NUMA node %d, the machine %d", o.TotalMemSize,
				name, id, t.TotalMemSize)
		case t.SystemReserved != o.SystemReserved:
			return fmt.Errorf("it reserves %d bytes of %s on NUMA node %d, the settings %d", o.SystemReserved, name,
				id, t.SystemReserved)
		case t.Allocatable != o.Allocatable:
			return fmt.Errorf("it has %d allocatable bytes of %s on NUMA node %d, the machine %d", o.Allocatable,
				name, id, t.Allocatable)
		}
		var free, otherFree uint64
		for _, member := range n.Cells {
			free += s.table(member, name).Free
			otherFree += file.table(member, name).Free
		}
		if free != otherFree {
			return fmt.Errorf("it has %d free bytes of %s on the NUMA nodes %v, where containers leave %d", otherFree,
				name, n.Cells, free)
		}
	}
	return nil
}

// content returns the content of the file.
func (m *Manager) content() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return state.Format(&state.File{PolicyName: policy, MachineState: m.machine.nodes,
		Entries: m.machine.entries}, m.machine.pods), nil
}
