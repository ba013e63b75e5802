//go:build unix

package safefile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFilesIn(t *testing.T) {
	dir := t.TempDir()
	files, err := FilesIn(dir, 10)
	require.NoError(t, err)
	assert.Zero(t, files)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), make([]byte, 10_000), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sparse"), nil, 0o600))
	require.NoError(t, os.Truncate(filepath.Join(dir, "sparse"), 1<<40))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "d", "e"), 0o700))
	require.NoError(t, os.Symlink("a", filepath.Join(dir, "link")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	files, err = FilesIn(dir, 10)
	require.NoError(t, err)
	assert.EqualValues(t, 2, files.Inodes)
	assert.GreaterOrEqual(t, files.Bytes, uint64(10_000))
	assert.Less(t, files.Bytes, uint64(1<<20))
	for _, name := range []string{"a", "none", "pipe"} { // the other end of the pipe is not open
		_, err = FilesIn(filepath.Join(dir, name), 10)
		assert.Error(t, err, name)
	}
}
