//go:build unix

package eviction

import (
	"errors"
	"os"
	"syscall"
)

// device returns the device of the file system of a directory.
func device(dir string) (uint64, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return uint64(st.Dev), nil
}
