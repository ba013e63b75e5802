package memory

import (
	"k8s.io/apimachinery/pkg/types"
)

// isRunning reports whether the pod runs already while the manager is suspended: it goes on with what it has.
func (m *Manager) isRunning(uid types.UID) bool {
	m.mu.Lock()
	known := m.holding[uid] || m.admittedWhileSuspended[uid]
	m.mu.Unlock()
	return known || m.opts.Gone != nil && !m.opts.Gone(uid)
}

// admitSuspended reports whether a pod is admitted while the manager is suspended.
func (m *Manager) admitSuspended(uid types.UID) bool {
	if !m.isRunning(uid) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.admittedWhileSuspended[uid] = true
	return true
}

// resume ends the suspension of a state that can be read, if the pod is the last one in it. It reports whether it did.
// mu is held.
func (m *Manager) resume(uid types.UID) bool {
	if m.suspended == nil || !m.holding[uid] {
		return false
	}
	delete(m.holding, uid)
	if len(m.holding) > 0 {
		return false
	}
	m.suspended = nil
	return true
}

// Reset replaces the state by an empty one after a [*StateError] of [Manager.Restore], as with [Options.Reset]. It does
// nothing if the manager is not suspended. Run writes the state. It fails if the state was not read.
func (m *Manager) Reset() error {
	if err := m.file.Load(); err != nil {
		return err
	}
	m.mu.Lock()
	suspended := m.suspended
	m.suspended, m.holding = nil, nil
	if suspended != nil {
		m.changes++
	}
	m.mu.Unlock()
	if suspended != nil {
		m.logReset(suspended)
		m.file.SaveLater()
	}
	return nil
}

func (m *Manager) logReset(suspended *StateError) {
	m.opts.Logger.Info("The state of memory is replaced by an empty one: containers that run keep their memory "+
		"nodes until they are created again",
		"path", suspended.Path, "reason", suspended.Err.Error())
}
