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
	// policy is the name of the policy in the state.
	policy = "Static"
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

// Restore reads the state, unless it is read already. It is called before the agent runs; otherwise the first
// allocation does it.
//
// With a [*StateError] the manager is suspended, until [Manager.Reset] or the end of the pods of StateError.Pods: it
// can be used, and does what the package documentation says. With another error, of the disk, no container with memory
// can be created until Restore succeeds.
func (m *Manager) Restore() error { return m.stateError(m.file.Load()) }

// stateError returns the error of the read of the state, or why the state that was read cannot be used.
func (m *Manager) stateError(read error) error {
	if read != nil {
		return read
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.suspended != nil {
		return m.suspended
	}
	return nil
}

func (m *Manager) restore() error {
	s, err := m.read()
	suspended := (*StateError)(nil)
	if err != nil && !errors.As(err, &suspended) {
		return err
	}
	if suspended != nil && m.opts.Reset {
		m.logReset(suspended)
		s, suspended = m.empty(), nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if suspended != nil {
		suspended.Hint = m.opts.ResetHint
		s = m.empty()
		for _, uid := range suspended.Pods {
			if m.holding == nil {
				m.holding = map[types.UID]bool{}
			}
			m.holding[uid] = true
		}
	}
	m.machine, m.suspended = s, suspended
	m.changes++
	return nil
}

// StaticLeft reports whether a state of the policy Static is left. It is for an agent with kubelet's policy None, which
// gives containers no memory. gone reports whether nothing is left of a pod; if it is nil, something is left of each.
// StaticLeft changes nothing. Its results are:
//
//  1. false: there is no file, or it is of the policy None.
//  2. true: no pods hold memory by the state, or nothing is left of them.
//  3. true and a [*StateError] with the pods that hold memory by the state.
//  4. true and a [*StateError] without pods: the content of the file cannot be read.
//  5. false and another error: the disk does not return the file.
func StaticLeft(path string, gone func(types.UID) bool) (bool, error) {
	f, err := readState(&safefile.Reader{}, path)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && f.PolicyName == "None":
		return false, nil
	case err != nil:
		return errors.As(err, new(*StateError)), err
	}
	if left := holders(f, gone); len(left) > 0 {
		return true, &StateError{Path: path,
			Err: errors.New("pods hold memory by the policy Static, and the policy is None"), Pods: left}
	}
	return true, nil
}

// LeaveStatic removes what [StaticLeft] reports, so that kubelet can be started with the policy None, too. It fails as
// StaticLeft does, or with reset it removes the state also after a [*StateError]: containers that run keep their memory
// nodes until they end.
func LeaveStatic(path string, gone func(types.UID) bool, reset bool) error {
	left, err := StaticLeft(path, gone)
	if err != nil && (!reset || !errors.As(err, new(*StateError))) {
		return err
	}
	if !left {
		return nil
	}
	return checkpoint.Remove(path)
}

// holders returns the pods of the file that are not gone.
func holders(f *state.File, gone func(types.UID) bool) (pods []types.UID) {
	for _, uid := range slices.Sorted(maps.Keys(f.Entries)) {
		if gone == nil || !gone(types.UID(uid)) {
			pods = append(pods, types.UID(uid))
		}
	}
	return pods
}

// readState returns the content of the file. It fails with [os.ErrNotExist] and a [*StateError].
func readState(r *safefile.Reader, path string) (*state.File, error) {
	var f *state.File
	err := checkpoint.Read(r, path, checkpoint.MaxSize, func(data []byte) (err error) {
		f, err = state.Parse(data)
		return err
	})
	switch damaged := (*checkpoint.DamagedError)(nil); {
	case errors.As(err, &damaged):
		return nil, &StateError{Path: path, Err: damaged.Err}
	case err != nil:
		return nil, fmt.Errorf("memory: reading the state: %w", err)
	}
	return f, nil
}

// read returns the machine state of the file, or an empty one if there is none or no pod holds memory.
func (m *Manager) read() (*machineState, error) {
	f, err := readState(&m.file.Reader, m.path)
	if errors.Is(err, os.ErrNotExist) {
		return m.empty(), nil
	}
	if err != nil {
		return nil, err
	}
	left := holders(f, m.opts.Gone)
	if len(left) == 0 {
		return m.empty(), nil
	}
	if f.PolicyName != policy {
		return nil, &StateError{Path: m.path, Err: fmt.Errorf("it is of the policy %q, not %q", f.PolicyName, policy),
			Pods: left}
	}
	s, err := m.recount(f)
	if err != nil {
		return nil, &StateError{Path: m.path, Err: err, Pods: left}
	}
	for _, uid := range slices.Sorted(maps.Keys(s.entries)) {
		if !slices.Contains(left, types.UID(uid)) {
			m.opts.Logger.Info("A pod that is gone held memory", "pod", uid)
			s.dropPod(uid)
		}
	}
	return s, nil
}

// recount returns the machine state of the entries of the file, if it gives the nodes of the file on this machine.
func (m *Manager) recount(f *state.File) (*machineState, error) {
	s := m.empty()
	for _, uid := range slices.Sorted(maps.Keys(f.Entries)) {
		for _, c := range slices.Sorted(maps.Keys(f.Entries[uid])) {
			for _, block := range f.Entries[uid][c] {
				if err := s.check(block); err != nil {
					return nil, fmt.Errorf("container %q of pod %s: %w", c, uid, err)
				}
				slices.Sort(block.NUMAAffinity)
				s.take(block, block.Size)
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

// content returns the content of the file, if it has changed since it was written.
func (m *Manager) content(saved uint64) (uint64, []byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes == saved || m.suspended != nil {
		return saved, nil, nil
	}
	return m.changes, state.Format(&state.File{PolicyName: policy, MachineState: m.machine.nodes,
		Entries: m.machine.entries}), nil
}
