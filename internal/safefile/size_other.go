//go:build !linux

package safefile

import (
	"errors"
	"fmt"
)

// DiskSize returns the size of the file system of a directory. On systems other than Linux, the
// error wraps [errors.ErrUnsupported].
func DiskSize(dir string) (Disk, error) {
	return Disk{}, fmt.Errorf("the size of the file system of %s: %w", dir, errors.ErrUnsupported)
}
