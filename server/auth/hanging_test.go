package auth

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
)

// While a file hangs, its former content is valid, and requests do not wait for it.
func TestAFileThatHangs(t *testing.T) {
	hanging, _ := testenv.HangingDir(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens")
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
	f, err := newFile(path, "tokens", logr.Discard(),
		func(content []byte) (string, error) { return string(content), nil })
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink(filepath.Join(hanging, "tokens"), path))
	f.reader.Timeout = 100 * time.Millisecond
	for range 3 {
		f.mu.Lock()
		f.read = time.Time{}
		f.mu.Unlock()
		assert.Equal(t, "text", f.get())
	}
}
