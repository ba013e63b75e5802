//go:build !linux

package cri

import (
	"errors"
	"fmt"
)

// statfs is for Linux only.
func statfs(dir string) (capacity, available int64, err error) {
	return 0, 0, fmt.Errorf("the size of the file system of %s: %w", dir, errors.ErrUnsupported)
}
