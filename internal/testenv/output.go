package testenv

import (
	"bytes"
	"strings"
	"sync"
)

// Output is a buffer that several goroutines write to. The zero value is empty.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements [io.Writer].
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String returns what was written.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Take returns the lines that were written since the last call.
func (o *Output) Take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.TrimSpace(o.buf.String())
	o.buf.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
