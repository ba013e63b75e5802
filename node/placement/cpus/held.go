package cpus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// heldBy returns why the manager is held; nil if it is not.
func (m *Manager) heldBy() *StateError {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held
}

// isRunning reports whether the pod runs already while the manager is held: it goes on with what it has.
func (m *Manager) isRunning(uid types.UID) bool {
	return m.HasExclusive(uid) || m.opts.Gone != nil && !m.gone(uid)
}

// admitHeld returns the error for a pod that requests exclusive CPUs while the manager is held, unless it runs already.
func (m *Manager) admitHeld(p *v1.Pod, held *StateError) error {
	if !m.isRunning(p.UID) {
		return held
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.pod(p.UID)
	known.restored, known.admittedWhileHeld = false, true
	return nil
}

// releaseHold ends the hold of a checkpoint that can be read, if no assignment is left that does not go with the
// machine. It reports whether it did. mu is held.
func (m *Manager) releaseHold() bool {
	if m.held == nil || m.unknown {
		return false
	}
	for _, p := range m.pods {
		if len(p.invalid) > 0 {
			return false
		}
	}
	m.held = nil
	return true
}

// Reset drops what of the checkpoint cannot be used after a [*StateError] of [Manager.Restore], as with
// [Options.Reset]. It does nothing if the manager is not held. Run writes the checkpoint. It fails if the checkpoint
// was not read.
func (m *Manager) Reset() error {
	if err := m.file.Load(); err != nil {
		return err
	}
	m.mu.Lock()
	held := m.held
	m.held, m.unknown = nil, false
	if held != nil {
		for _, p := range m.pods {
			clear(p.invalid)
		}
		m.assignmentsChanged()
	}
	m.mu.Unlock()
	if held == nil {
		return nil
	}
	m.logReset(held)
	m.file.SaveLater()
	m.wake.Notify()
	return nil
}

func (m *Manager) logReset(held *StateError) {
	m.opts.Logger.Info("Assignments of CPUs are dropped", "path", held.Path, "reasons", held.Problems)
}
