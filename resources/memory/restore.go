package memory

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/resources/memory/internal/state"
	"github.com/kubeletkit/kubeletkit/resources/numa"
)

const (
	// FileName is kubelet's name of the state, in its root directory.
	FileName = "memory_manager_state"
	// policy is the name of the policy in the state.
	policy = "Static"
	// maxState is the size of the largest state that is read, in bytes.
	maxState = 16 << 20
)

// StateError means that the state cannot be used: the file is corrupt, of another policy, or of other amounts of memory or reservations.
type StateError struct {
	Path string
	Err  error
}

func (e *StateError) Error() string {
	return fmt.Sprintf("memory: the state %s cannot be used: %v: drain the node and remove the file, or have it reset", e.Path, e.Err)
}

func (e *StateError) Unwrap() error { return e.Err }

// Restore reads the state. It is called before the agent runs; otherwise the first allocation does it. It does nothing after it has succeeded
// once. It fails with a [*StateError], and with errors of the file.
func (m *Manager) Restore() error {
	m.restoring.Lock()
	defer m.restoring.Unlock()
	m.mu.Lock()
	done := m.books != nil
	m.mu.Unlock()
	if done {
		return nil
	}
	b, err := m.read()
	if err != nil && !m.opts.Reset {
		return err
	}
	if err != nil {
		m.opts.Logger.Error(err, "The state of memory is reset: containers that run keep their memory nodes until they are created again")
		b = m.empty()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.books = b
	m.changes++
	return nil
}

// LeaveStatic is for an agent that gives containers no memory: kubelet's policy None. It removes a state of the policy Static in which no
// pod holds memory but those of which gone reports that nothing is left, so that kubelet can be started with that policy, too. If pods hold memory, or the state cannot be
// read, it fails with a [*StateError], or with reset it removes the state: containers that run keep their memory nodes until they end.
func LeaveStatic(path string, gone func(types.UID) bool, reset bool) error {
	f, err := readState(path)
	stateErr := (*StateError)(nil)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && f.PolicyName == "None":
		return nil
	case err != nil && !errors.As(err, &stateErr):
		return err
	case err == nil:
		for uid := range f.Entries {
			if !gone(types.UID(uid)) {
				stateErr = &StateError{path, errors.New("pods hold memory by the policy Static, and the policy is None")}
			}
		}
	}
	if stateErr != nil && !reset {
		return stateErr
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("memory: removing the state: %w", err)
	}
	return nil
}

// readState returns the content of the file. It fails with [os.ErrNotExist] and a [*StateError].
func readState(path string) (*state.File, error) {
	data, err := safefile.ReadFile(path, maxState)
	if errors.Is(err, safefile.ErrTooLarge) {
		return nil, &StateError{path, err}
	}
	if err != nil {
		return nil, fmt.Errorf("memory: reading the state: %w", err)
	}
	f, err := state.Parse(data)
	if err != nil {
		return nil, &StateError{path, err}
	}
	return f, nil
}

// read returns the books in the file, or empty ones if there is none or no pod holds memory.
func (m *Manager) read() (*books, error) {
	f, err := readState(m.path)
	if errors.Is(err, os.ErrNotExist) {
		return m.empty(), nil
	}
	if err != nil {
		return nil, err
	}
	var stale []string
	for _, uid := range slices.Sorted(maps.Keys(f.Entries)) {
		if m.opts.Gone(types.UID(uid)) {
			stale = append(stale, uid)
		}
	}
	if len(stale) == len(f.Entries) {
		return m.empty(), nil
	}
	if f.PolicyName != policy {
		return nil, &StateError{m.path, fmt.Errorf("it is of the policy %q, not %q", f.PolicyName, policy)}
	}
	b, err := m.recount(f)
	if err != nil {
		return nil, &StateError{m.path, err}
	}
	for _, uid := range stale {
		m.opts.Logger.Info("A pod that is gone held memory", "pod", uid)
		b.dropPod(uid)
	}
	return b, nil
}

// recount returns books with the entries of the file, if they give the nodes of the file on this machine.
func (m *Manager) recount(f *state.File) (*books, error) {
	b := m.empty()
	for _, uid := range slices.Sorted(maps.Keys(f.Entries)) {
		for _, c := range slices.Sorted(maps.Keys(f.Entries[uid])) {
			for _, block := range f.Entries[uid][c] {
				if err := b.check(block); err != nil {
					return nil, fmt.Errorf("container %q of pod %s: %w", c, uid, err)
				}
				slices.Sort(block.NUMAAffinity)
				b.take(block, block.Size)
			}
		}
	}
	b.entries = f.Entries
	if len(f.MachineState) != len(b.nodes) {
		return nil, fmt.Errorf("it has %d NUMA nodes, the machine %d", len(f.MachineState), len(b.nodes))
	}
	other := &books{nodes: f.MachineState}
	for _, id := range slices.Sorted(maps.Keys(b.nodes)) {
		if err := b.same(id, other); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// check reports a node or a resource of a block that the machine does not have.
func (b *books) check(block state.Block) error {
	if len(block.NUMAAffinity) == 0 || numa.Of(block.NUMAAffinity...).Len() != len(block.NUMAAffinity) {
		return fmt.Errorf("it has memory on the NUMA nodes %v", block.NUMAAffinity)
	}
	for _, id := range block.NUMAAffinity {
		if b.nodes[id] == nil {
			return fmt.Errorf("it has memory on NUMA node %d, which the machine does not have", id)
		}
		if b.nodes[id].MemoryMap[block.Type] == nil {
			return fmt.Errorf("it has %s on NUMA node %d, which has none", block.Type, id)
		}
	}
	return nil
}

// same compares a node with that of the books of a file, as kubelet does: how the blocks of a group lie on its nodes does not count.
func (b *books) same(id int, file *books) error {
	n, other := b.nodes[id], file.nodes[id]
	switch group := numa.Of(n.Cells...); {
	case other == nil:
		return fmt.Errorf("it has no NUMA node %d", id)
	case n.NumberOfAssignments != other.NumberOfAssignments:
		return fmt.Errorf("it counts %d blocks on NUMA node %d, where containers have %d", other.NumberOfAssignments, id, n.NumberOfAssignments)
	case group != numa.Of(other.Cells...) || group.Len() != len(other.Cells):
		return fmt.Errorf("it has NUMA node %d in the group %v, in which containers have %v", id, other.Cells, n.Cells)
	case len(n.MemoryMap) != len(other.MemoryMap):
		return fmt.Errorf("it has %d resources on NUMA node %d, the machine %d", len(other.MemoryMap), id, len(n.MemoryMap))
	}
	for _, name := range slices.Sorted(maps.Keys(n.MemoryMap)) {
		t, o := *n.MemoryMap[name], other.MemoryMap[name]
		switch {
		case o == nil:
			return fmt.Errorf("it has no %s on NUMA node %d", name, id)
		case t.TotalMemSize != o.TotalMemSize:
			return fmt.Errorf("it has %d bytes of %s on NUMA node %d, the machine %d", o.TotalMemSize, name, id, t.TotalMemSize)
		case t.SystemReserved != o.SystemReserved:
			return fmt.Errorf("it reserves %d bytes of %s on NUMA node %d, the settings %d", o.SystemReserved, name, id, t.SystemReserved)
		case t.Allocatable != o.Allocatable:
			return fmt.Errorf("it has %d allocatable bytes of %s on NUMA node %d, the machine %d", o.Allocatable, name, id, t.Allocatable)
		}
		var free, otherFree uint64
		for _, member := range n.Cells {
			free += b.table(member, name).Free
			otherFree += file.table(member, name).Free
		}
		if free != otherFree {
			return fmt.Errorf("it has %d free bytes of %s on the NUMA nodes %v, where containers leave %d", otherFree, name, n.Cells, free)
		}
	}
	return nil
}

// save writes the state, if it has changed since it was written.
func (m *Manager) save() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	if m.books == nil || m.saved == m.changes {
		m.mu.Unlock()
		return nil
	}
	changes := m.changes
	data := state.Format(&state.File{PolicyName: policy, MachineState: m.books.nodes, Entries: m.books.entries})
	m.mu.Unlock()
	if err := m.write(m.path, data); err != nil {
		return fmt.Errorf("writing the state of memory: %w", err)
	}
	m.mu.Lock()
	m.saved = changes
	m.mu.Unlock()
	return nil
}
