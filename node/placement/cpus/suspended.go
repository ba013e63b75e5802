package cpus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// suspendedBy returns why the manager is suspended; nil if it is not.
func (m *Manager) suspendedBy() *StateError {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.suspended
}

// isRunning reports whether the pod runs already while the manager is suspended: it goes on with what it has.
func (m *Manager) isRunning(uid types.UID) bool {
	return m.HasExclusive(uid) || m.opts.Gone != nil && !m.gone(uid)
}

// admitSuspended returns the error for a pod that requests exclusive CPUs while the manager is suspended, unless it
// runs already.
func (m *Manager) admitSuspended(p *v1.Pod, suspended *StateError) error {
	if !m.isRunning(p.UID) {
		return suspended
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.pod(p.UID)
	known.restored, known.admittedWhileSuspended = false, true
	return nil
}

// resume ends the suspension of a checkpoint that can be read, if no assignment is left that does not go with the
// machine. It reports whether it did. mu is held.
func (m *Manager) resume() bool {
	if m.suspended == nil || m.unknown {
		return false
	}
	for _, p := range m.pods {
		if len(p.invalid) > 0 {
			return false
		}
	}
	m.suspended = nil
	return true
}

// Reset drops what of the checkpoint cannot be used after a [*StateError] of [Manager.Restore], as with
// [Options.Reset]. It does nothing if the manager is not suspended. Run writes the checkpoint. It fails if the
// checkpoint was not read.
func (m *Manager) Reset() error {
	if err := m.file.Load(); err != nil {
		return err
	}
	m.mu.Lock()
	suspended := m.suspended
	m.suspended, m.unknown = nil, false
	if suspended != nil {
		for _, p := range m.pods {
			clear(p.invalid)
		}
		m.assignmentsChanged()
	}
	m.mu.Unlock()
	if suspended == nil {
		return nil
	}
	m.logReset(suspended)
	m.file.SaveLater()
	m.wake.Notify()
	return nil
}

func (m *Manager) logReset(suspended *StateError) {
	m.opts.Logger.Info("Assignments of CPUs are dropped", "path", suspended.Path, "reasons", suspended.Problems)
}
