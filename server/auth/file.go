package auth

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// filePeriod is the time between two reads of a file (kubelet: a minute, and inotify).
const filePeriod = 10 * time.Second

// file is a value that is read from a file, and again when the file has changed. While the file
// cannot be read or parsed, the value is that of before.
type file[T any] struct {
	path, what string // no path: the value never changes
	parse      func(content []byte) (T, error)
	log        logr.Logger

	mu      sync.Mutex
	read    time.Time // when the file was read
	content []byte
	value   T
}

// newFile reads the file, which has what for people.
func newFile[T any](path, what string, log logr.Logger, parse func([]byte) (T, error)) (*file[T], error) {
	f := &file[T]{path: path, what: what, parse: parse, log: log, read: time.Now()}
	return f, f.reread()
}

func (f *file[T]) reread() error {
	content, err := os.ReadFile(f.path)
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
	f.content, f.value = append([]byte{}, content...), value
	return nil
}

// get returns the current value. It reads the file if it has not done so for filePeriod.
func (f *file[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.path != "" && now.Sub(f.read) >= filePeriod {
		f.read = now
		if err := f.reread(); err != nil {
			f.log.Error(err, "A file cannot be used; what was read before stays valid")
		}
	}
	return f.value
}
