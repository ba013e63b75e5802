package objects

// Watchers returns how many calls of Watch run.
func (s *Store) Watchers() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.watchers)
}
