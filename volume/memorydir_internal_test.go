package volume

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// MemoryDir returns a directory for a test with many files. It is in memory if the machine has such a file system: a disk
// takes up to ten times as long.
func MemoryDir(t *testing.T) string {
	t.Helper()
	top, err := os.MkdirTemp("/dev/shm", "volume")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(top)) })
	dir := filepath.Join(top, "001") // as below t.TempDir, the parent is of the test alone
	require.NoError(t, os.Mkdir(dir, 0o755))
	return dir
}
