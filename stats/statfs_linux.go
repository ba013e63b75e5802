package stats

import "golang.org/x/sys/unix"

// statfs returns the size of the file system of a directory.
func statfs(dir string) (fsSize, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fsSize{}, err
	}
	unit := st.Frsize
	if unit <= 0 {
		unit = st.Bsize
	}
	return sizeOf(uint64(max(unit, 0)), st.Blocks, st.Bfree, st.Bavail, st.Files, st.Ffree), nil
}
