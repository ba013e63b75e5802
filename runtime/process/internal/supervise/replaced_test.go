//go:build linux

package supervise

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// Without root, containers run as the user of the server. What they put in the place of its files
// neither blocks it nor fills its memory: a goroutine that hangs keeps the server from ending.
func TestReplacedFilesDoNotBlock(t *testing.T) {
	dir := t.TempDir()
	pipe, huge, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "huge"), filepath.Join(dir, "link")
	require.NoError(t, unix.Mkfifo(pipe, 0o600)) // nobody writes to it
	require.NoError(t, os.WriteFile(huge, nil, 0o600))
	require.NoError(t, os.Truncate(huge, 1<<40))
	require.NoError(t, os.Symlink(pipe, link))

	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, Sync(pipe), "it has nothing to sync")
		assert.NoError(t, Sync(link))
		assert.NoError(t, Sync(dir))
		_, err := Dial(t.Context(), pipe, time.Second)
		assert.ErrorIs(t, err, unix.ENOTDIR)
		_, err = readSpec(huge)
		assert.ErrorAs(t, err, new(*BadFileError))
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it waits for the other end of the pipe")
	}
}

// A device has an effect when it is opened, such as a watchdog, which then begins to count.
func TestLogIsNotOpenedUnlessItIsAFile(t *testing.T) {
	dir := t.TempDir()
	pipe, file, secret := filepath.Join(dir, "pipe"), filepath.Join(dir, "file"), filepath.Join(dir, "secret")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(dir, "link")))
	// With a reader, opening the pipe would succeed.
	reader, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	defer func() { _ = reader.Close() }()
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	require.NoError(t, err)
	defer func() { _ = unix.Close(watch) }()
	_, err = unix.InotifyAddWatch(watch, pipe, unix.IN_OPEN)
	require.NoError(t, err)

	l := &logFile{path: pipe}
	require.ErrorIs(t, l.open(), safefile.ErrType)
	_, err = unix.Read(watch, make([]byte, 4096))
	assert.ErrorIs(t, err, unix.EAGAIN, "it was opened")
	l.path = filepath.Join(dir, "link")
	require.ErrorIs(t, l.open(), unix.ELOOP)
	assert.NoFileExists(t, secret)

	l.path = file
	for range 2 { // made, and opened again
		require.NoError(t, l.open())
		l.write("stdout", []byte("line\n"), nil)
	}
	l.close()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "line\nline\n", string(data))
}
