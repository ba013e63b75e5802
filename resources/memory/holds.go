package memory

import v1 "k8s.io/api/core/v1"

// Holds reports whether the container has the memory that it requests, or was an init container that has given it back; true if it requests none.
func (m *Manager) Holds(pod *v1.Pod, container *v1.Container) bool {
	if !counts(pod) {
		return true
	}
	request, err := requestOf(container.Resources.Requests)
	if err != nil { // Allocate has the error
		return false
	}
	if len(request) == 0 {
		return true
	}
	if m.Restore() != nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, held := m.machine.entries[string(pod.UID)][container.Name]
	return held || m.machine.passed(pod, container.Name)
}
