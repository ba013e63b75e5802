package status

// Entries returns the number of UIDs that the manager has an entry of.
func (m *Store) Entries() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pods)
}
