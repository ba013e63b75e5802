package testenv

import (
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// HangingDir returns a directory on a file system that does not answer until answer is called: then calls of the kernel
// end with an error. It skips the test if this process may not mount one. What has the path of a file in the directory
// hangs, too.
func HangingDir(t testing.TB) (dir string, answer func()) {
	t.Helper()
	dir = t.TempDir()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("a file system that hangs needs /dev/fuse: ", err)
	}
	answer = sync.OnceFunc(func() { _ = unix.Close(fd) })
	if err := unix.Mount("hanging", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", fd, unix.Geteuid(), unix.Getegid())); err != nil {
		answer()
		t.Skip("a file system that hangs cannot be mounted: ", err)
	}
	t.Cleanup(func() {
		answer()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmounting the file system that hangs: %v", err)
		}
	})
	return dir, answer
}
