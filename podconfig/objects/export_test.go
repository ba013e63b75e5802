package objects

// Watchers returns how many calls of Watch run.
func (s *Store) Watchers() int {
	s.watchers.mu.Lock()
	defer s.watchers.mu.Unlock()
	return len(s.watchers.calls)
}
