//go:build unix

package safefile_test

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("file"), []byte("text"), 0o600))
	require.NoError(t, os.Symlink("file", at("link")))
	require.NoError(t, os.Symlink("fifo", at("link-to-fifo")))
	require.NoError(t, syscall.Mkfifo(at("fifo"), 0o600))
	lis, err := net.Listen("unix", at("socket"))
	require.NoError(t, err)
	defer func() { _ = lis.Close() }()

	// None of these waits: nobody has the other end of the pipe.
	for _, open := range []func(string) (*os.File, error){safefile.Open, safefile.OpenReadWrite, safefile.OpenAppend} {
		for _, name := range []string{"fifo", "socket", "."} {
			_, err := open(at(name))
			assert.ErrorIs(t, err, safefile.ErrType, name)
		}
		for _, name := range []string{"link", "link-to-fifo"} {
			_, err := open(at(name))
			assert.ErrorIs(t, err, syscall.ELOOP, name)
		}
	}
	for _, name := range []string{"fifo", "link-to-fifo", "socket", "."} {
		_, err := safefile.ReadFile(at(name), 10)
		assert.ErrorIs(t, err, safefile.ErrType, name)
	}
	_, err = safefile.Open("/dev/null")
	assert.ErrorIs(t, err, safefile.ErrType)
	_, err = safefile.Open(at("none"))
	assert.ErrorIs(t, err, os.ErrNotExist)

	f, err := safefile.Open(at("file"))
	require.NoError(t, err)
	assert.Equal(t, at("file"), f.Name())
	buf := make([]byte, 4)
	_, err = f.Read(buf)
	require.NoError(t, err)
	assert.Equal(t, "text", string(buf))
	require.NoError(t, f.Close())

	f, err = safefile.OpenReadWrite(at("file"))
	require.NoError(t, err)
	_, err = f.WriteString("T")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	for _, name := range []string{"file", "link"} {
		data, err := safefile.ReadFile(at(name), 4)
		require.NoError(t, err)
		assert.Equal(t, "Text", string(data))
	}
	f, err = safefile.OpenAppend(at("file"))
	require.NoError(t, err)
	_, err = f.WriteString("!")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	data, err := safefile.ReadFile(at("file"), 5)
	require.NoError(t, err)
	assert.Equal(t, "Text!", string(data))
}

func TestReadFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 1<<40))
	_, err := safefile.ReadFile(path, 1<<10)
	assert.ErrorIs(t, err, safefile.ErrTooLarge)
}
