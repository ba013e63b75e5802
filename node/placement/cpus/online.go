package cpus

// readOnline leaves CPUs that have gone offline out of the shared pool. Containers of the pool that run get the rest.
func (m *Manager) readOnline() {
	if m.opts.Online == nil {
		return
	}
	online, err := m.opts.Online()
	m.mu.Lock()
	failed := err != nil && !m.onlineFailed
	m.onlineFailed = err != nil
	gone := m.layout.all.Difference(online).Difference(m.offline)
	changed := err == nil && !gone.IsEmpty()
	if changed {
		m.offline = m.offline.Union(gone)
		m.share()
	}
	m.mu.Unlock()
	switch {
	case failed:
		m.node.Logger().Error(err, "It is not known which CPUs are online")
	case changed:
		m.node.Logger().Info("CPUs have gone offline: containers without exclusive CPUs do not use them until the "+
			"next agent starts", "cpus", gone.String())
		m.wake.Notify()
	}
}
