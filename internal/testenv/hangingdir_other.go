//go:build !linux

package testenv

import "testing"

// HangingDir skips the test: there are no file systems that hang but on Linux.
func HangingDir(t testing.TB) (dir string, answer func()) {
	t.Skip("a file system that hangs needs Linux")
	return "", nil
}
