package cri

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// statfs returns the size of the file system of a directory, and what unprivileged users
// can still write, in bytes.
func statfs(dir string) (capacity, available int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	return int64(st.Blocks) * unit, int64(st.Bavail) * unit, nil
}
