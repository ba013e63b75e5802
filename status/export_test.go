package status

// Records returns the number of UIDs that the manager has a record of.
func (m *Store) Records() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pods)
}
