package safefile

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// DiskSize returns the size of the file system of a directory. On systems other than Linux, the
// error wraps [errors.ErrUnsupported].
func DiskSize(dir string) (Disk, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Disk{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	unit := st.Frsize
	if unit <= 0 {
		unit = st.Bsize
	}
	return size(uint64(max(unit, 0)), st.Blocks, st.Bfree, st.Bavail, st.Files, st.Ffree), nil
}
