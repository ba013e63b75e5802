package plugins

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A socket that is removed is gone also when a directory cannot be watched.
func TestDirectoryThatIsNotWatched(t *testing.T) {
	dir, err := os.MkdirTemp("", "plugins")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "a.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	s, full := newScan(dir), errors.New("no watch is left")
	read := func() map[string]uint64 {
		found, err := s.read(func(string) error { return full })
		require.ErrorIs(t, err, full)
		return found
	}
	assert.Equal(t, map[string]uint64{path: 1}, read())
	require.NoError(t, l.Close())
	assert.Empty(t, read())
}
