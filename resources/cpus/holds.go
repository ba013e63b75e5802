package cpus

import v1 "k8s.io/api/core/v1"

// Holds reports whether the container has as many exclusive CPUs as it requests; true if it requests none.
func (m *Manager) Holds(p *v1.Pod, c *v1.Container) bool {
	n := Exclusive(p, c)
	if n == 0 {
		return true
	}
	return m.Restore() == nil && m.Exclusive(p.UID, c.Name).Size() == n
}
