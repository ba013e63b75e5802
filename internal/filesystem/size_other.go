//go:build !linux

package filesystem

import (
	"errors"
	"fmt"
)

// SizeOf returns the size of the file system of a directory. On systems other than Linux, the
// error wraps [errors.ErrUnsupported].
func SizeOf(dir string) (Size, error) {
	return Size{}, fmt.Errorf("the size of the file system of %s: %w", dir, errors.ErrUnsupported)
}
