package podworkers

// Leftovers returns the number of pods with a call under way or a timer, and of full names
// that a pod holds or waits for. Idle pods of an API server have none of them.
func (w *Pool) Leftovers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.workers) + len(w.machines.names)
}
