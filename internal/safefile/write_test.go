package safefile_test

import (
	"bufio"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

func TestWrite(t *testing.T) {
	for name, write := range map[string]func(string, []byte) error{
		"Write": safefile.Write, "WriteSync": safefile.WriteSync,
		"WriteSyncVia": func(path string, data []byte) error { return safefile.WriteSyncVia(path+".new", path, data) },
		"WriteFrom": func(path string, data []byte) error {
			return safefile.WriteFrom(path, func(w *bufio.Writer) { _, _ = w.Write(data) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			require.NoError(t, os.WriteFile(path+".new", make([]byte, 1<<10), 0o600), "of a process that was killed")
			for _, content := range []string{"one", "", "three"} {
				require.NoError(t, write(path, []byte(content)))
				require.NoError(t, safefile.SyncDir(dir))
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				assert.Equal(t, content, string(data))
			}
			info, err := os.Stat(path)
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o600), info.Mode())

			require.NoError(t, os.Mkdir(filepath.Join(dir, "taken"), 0o700))
			require.Error(t, write(filepath.Join(dir, "taken"), nil))
			require.ErrorIs(t, write(filepath.Join(dir, "missing", "file"), nil), os.ErrNotExist)
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Len(t, entries, 2, "nothing is left of what failed")
		})
	}
	require.ErrorIs(t, safefile.SyncDir(filepath.Join(t.TempDir(), "missing")), os.ErrNotExist)
}

// A disk that is full is an error of the write, and nothing is left of it.
func TestWriteToAFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, safefile.Write(path, []byte("old")))
	require.NoError(t, os.Symlink("/dev/full", path+".new"))
	require.Error(t, safefile.Write(path, []byte("new")))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "old", string(data))
	assert.NoFileExists(t, path+".new")
}
