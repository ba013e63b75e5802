package podworkers

// Leftovers returns the number of pods with a call under way or a timer, and of full names
// that a pod holds or waits for. Idle pods of an API server have none of them.
func (p *Pool) Leftovers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workers) + len(p.machines.names)
}
