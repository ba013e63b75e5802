package config

import (
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// readTimeout is how long the file system may take. A file may be a pipe, such as /dev/stdin, whose writer takes
	// its time.
	readTimeout = 30 * time.Second
	// maxFile is the limit for a file, in bytes.
	maxFile = 10 << 20
)

// ReadFile returns the content of a file that a flag names, of at most 10 MiB. It does not wait for ever.
func ReadFile(path string) ([]byte, error) {
	return soon(path, readTimeout, func() ([]byte, error) { return readFile(path) })
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1)) // one more shows that it is too large
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d MiB", path, maxFile>>20)
	}
	return data, err
}

// soon returns what f returns, or an error if that takes longer than the time limit. f goes on then: nothing can end a
// call of the kernel.
func soon[T any](path string, limit time.Duration, f func() (T, error)) (none T, _ error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C:
		return none, fmt.Errorf("%s has not been read within %v", path, limit)
	}
}
