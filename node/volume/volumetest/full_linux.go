package volumetest

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// enoughFiles is more than a plugin makes in a test.
const enoughFiles = 10_000

// mountSmall mounts a file system that has room for some files and directories at dir.
func mountSmall(dir string, files int) error {
	return unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=16m,nr_inodes=%d", files+1))
}

// enlarge makes room in it.
func enlarge(dir string) error {
	return unix.Mount("", dir, "", unix.MS_REMOUNT, fmt.Sprintf("nr_inodes=%d", enoughFiles))
}

func unmountSmall(dir string) error { return unix.Unmount(dir, 0) }
