package mounting

import "sync"

// buffer holds the output of a program, which may go on when it is taken.
type buffer struct {
	mu   sync.Mutex
	data []byte
}

// bufferSize is the limit for the output of a program, in bytes. The rest is dropped.
const bufferSize = 64 << 10

// Write implements [io.Writer].
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p[:min(len(p), bufferSize-len(b.data))]...)
	return len(p), nil
}

func (b *buffer) take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.data
	b.data = nil
	return out
}
