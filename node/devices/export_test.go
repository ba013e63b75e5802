package devices

// SaveForTest writes the checkpoint, as Run does.
func (m *Manager) SaveForTest() error { return m.held.Save() }
