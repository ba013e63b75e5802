package auth

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

const (
	// filePeriod is the time between two reads of a file (kubelet: a minute, and inotify).
	filePeriod = 10 * time.Second
	// maxFile is the maximum size of a file, in bytes.
	maxFile = 16 << 20
)

// file is a value that is read from a regular file, and again when the file has changed. While the
// file is read, or cannot be read or parsed, the value is that of before.
type file[T any] struct {
	path, what string // if path is empty, the value never changes
	parse      func(content []byte) (T, error)
	log        logr.Logger
	reader     safefile.Reader

	// content belongs to the goroutine that reads the file.
	content []byte

	mu      sync.Mutex
	read    time.Time // when the last read began
	reading bool      // one goroutine reads the file
	value   T
}

// newFile reads the file. what says in errors what it contains.
func newFile[T any](path, what string, log logr.Logger, parse func([]byte) (T, error)) (*file[T], error) {
	f := &file[T]{path: path, what: what, parse: parse, log: log, read: time.Now()}
	return f, f.reread()
}

func (f *file[T]) reread() error {
	content, err := f.reader.Read(f.path, maxFile)
	if err != nil {
		return fmt.Errorf("%s: %w", f.what, err)
	}
	if f.content != nil && bytes.Equal(content, f.content) {
		return nil
	}
	value, err := f.parse(content)
	if err != nil {
		return fmt.Errorf("%s: file %s: %w", f.what, f.path, err)
	}
	f.content = content
	f.mu.Lock()
	defer f.mu.Unlock()
	f.value = value
	return nil
}

// get returns the current value. It reads the file if it was not read for filePeriod. It does not
// wait for another goroutine that reads it.
func (f *file[T]) get() T {
	if f.begin() {
		f.refresh()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.value
}

// begin reports whether the caller is to call refresh.
func (f *file[T]) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.path == "" || f.reading || now.Sub(f.read) < filePeriod {
		return false
	}
	f.read, f.reading = now, true
	return true
}

// refresh reads the file after begin has returned true.
func (f *file[T]) refresh() {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.reading = false
	}()
	if err := f.reread(); err != nil {
		f.log.Error(err, "A file cannot be used; what was read before stays valid")
	}
}
