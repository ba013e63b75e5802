package cri

// Remembered returns how many pods the runtime remembers something of.
func (r *Runtime) Remembered() int {
	r.pods.mu.Lock()
	defer r.pods.mu.Unlock()
	return len(r.pods.pods)
}

// ErrStreamEnded is the error of a stream that ended without one.
var ErrStreamEnded = errStreamEnded
