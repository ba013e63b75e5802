package memory

import (
	"k8s.io/apimachinery/pkg/types"
)

// isRunning reports whether the pod runs already while the manager is held: it goes on with what it has.
func (m *Manager) isRunning(uid types.UID) bool {
	m.mu.Lock()
	known := m.holding[uid] || m.admittedWhileHeld[uid]
	m.mu.Unlock()
	return known || m.opts.Gone != nil && !m.opts.Gone(uid)
}

// admitHeld reports whether a pod is admitted while the manager is held.
func (m *Manager) admitHeld(uid types.UID) bool {
	if !m.isRunning(uid) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.admittedWhileHeld[uid] = true
	return true
}

// releaseHold ends the hold of a state that can be read, if the pod is the last one in it. It reports whether it did.
// mu is held.
func (m *Manager) releaseHold(uid types.UID) bool {
	if m.held == nil || !m.holding[uid] {
		return false
	}
	delete(m.holding, uid)
	if len(m.holding) > 0 {
		return false
	}
	m.held = nil
	return true
}

// Reset replaces the state by an empty one after a [*StateError] of [Manager.Restore], as with [Options.Reset]. It does
// nothing if the manager is not held. Run writes the state. It fails if the state was not read.
func (m *Manager) Reset() error {
	if err := m.file.Load(); err != nil {
		return err
	}
	m.mu.Lock()
	held := m.held
	m.held, m.holding = nil, nil
	if held != nil {
		m.changes++
	}
	m.mu.Unlock()
	if held != nil {
		m.logReset(held)
		m.file.SaveLater()
	}
	return nil
}

func (m *Manager) logReset(held *StateError) {
	m.opts.Logger.Info("The state of memory is replaced by an empty one: containers that run keep their memory "+
		"nodes until they are created again",
		"path", held.Path, "reason", held.Err.Error())
}
