package safefile_test

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

func TestReadFileIn(t *testing.T) {
	dir := t.TempDir()
	vol := filepath.Join(dir, "vol")
	require.NoError(t, os.MkdirAll(filepath.Join(vol, "a", "b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("hush"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(vol, "a", "f"), []byte("text"), 0o600))
	require.NoError(t, syscall.Mkfifo(filepath.Join(vol, "fifo"), 0o600))
	for name, target := range map[string]string{
		"l": "a/f", "a/b/up": "../f", "dir": "a/b", "a/b/far": "dots/../f", "a/b/dots": "../../a/b", "twice": "l", "to-fifo": "fifo", "to-dir": "a",
		"loop": "loop", "none": "missing", "out": "../secret", "abs": filepath.Join(vol, "a", "f"), "a/b/out": "../../../secret", "through": "dir/../../../secret",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(vol, name)))
	}
	for _, name := range []string{"a/f", "l", "a/b/up", "dir/up", "dir/../f", "a/b/far", "dir/far", "twice"} {
		data, err := safefile.ReadFileIn(vol, name, 4)
		require.NoError(t, err, name)
		assert.Equal(t, "text", string(data), name)
	}
	for name, want := range map[string]error{
		"fifo": safefile.ErrType, "to-fifo": safefile.ErrType, "a": safefile.ErrType, "to-dir": safefile.ErrType, "loop": syscall.ELOOP, "none": os.ErrNotExist, "missing": os.ErrNotExist,
		"l/x": syscall.ENOTDIR,
	} {
		_, err := safefile.ReadFileIn(vol, name, 4)
		assert.ErrorIs(t, err, want, name)
	}
	for _, name := range []string{"out", "abs", "a/b/out", "dir/out", "through",
		"../secret", filepath.Join(vol, "a", "f"), ""} {
		data, err := safefile.ReadFileIn(vol, name, 4)
		require.Error(t, err, name)
		assert.Empty(t, data)
	}
	_, err := safefile.ReadFileIn(vol, "a/f", 3)
	assert.ErrorIs(t, err, safefile.ErrTooLarge)
}

// A container replaces its file at the moment between the look at it and the opening. A pipe
// stands for a device, such as a watchdog, which has an effect when it is opened.
func TestFileSwappedBeforeItIsOpened(t *testing.T) {
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	require.NoError(t, err)
	defer func() { _ = unix.Close(watch) }()
	_, err = unix.InotifyAddWatch(watch, pipe, unix.IN_OPEN)
	require.NoError(t, err)

	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				assert.NoError(t, unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, pipe, unix.RENAME_EXCHANGE))
			}
		}
	})
	read := 0
	for range 20_000 {
		if data, err := safefile.ReadFileIn(dir, "file", 10); err == nil {
			assert.Equal(t, "text", string(data))
			read++
		} else {
			assert.ErrorIs(t, err, safefile.ErrType)
		}
		if _, err = unix.Read(watch, make([]byte, 4096)); err != unix.EAGAIN {
			break
		}
	}
	close(stop)
	swapping.Wait()
	assert.NotZero(t, read)
	_, err2 := unix.Read(watch, make([]byte, 4096))
	assert.ErrorIs(t, err, unix.EAGAIN, "the pipe was opened")
	assert.ErrorIs(t, err2, unix.EAGAIN, "the pipe was opened")
}
