package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// MemoryDir returns a directory for a test with many files, which is removed after the test. It is in
// memory if the machine has such a file system: a disk takes up to ten times as long.
func MemoryDir(t testing.TB) string {
	t.Helper()
	return memoryDir(t, "/dev/shm")
}

func memoryDir(t testing.TB, memory string) string {
	t.Helper()
	top, err := os.MkdirTemp(memory, "kubeletkit")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(top); err != nil {
			t.Errorf("removing the directory in memory: %v", err)
		}
	})
	dir := filepath.Join(top, "001") // as below t.TempDir, the parent is of the test alone
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatalf("making a directory in memory: %v", err)
	}
	return dir
}
