package server

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/fswatch"
)

func TestLogWatch(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "a", "0.log"), filepath.Join(dir, "b", "0.log")
	for _, p := range []string{path, other} {
		require.NoError(t, os.Mkdir(filepath.Dir(p), 0o755))
		require.NoError(t, os.WriteFile(p, nil, 0o600))
	}
	l := newLogWatch(logr.Discard())
	first, stopFirst := l.add(path)
	second, stopSecond := l.add(path)
	third, stopThird := l.add(other)
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	<-first
	<-second
	select {
	case <-third:
		t.Fatal("nothing was written there")
	default:
	}
	l.wakeAll() // as when events were lost
	<-third
	stopFirst()
	stopSecond()
	require.NoError(t, os.WriteFile(other, []byte("x"), 0o600))
	<-third
	require.NoError(t, os.RemoveAll(filepath.Dir(other)))
	stopThird()
	assert.Nil(t, l.watcher)
	assert.Empty(t, l.readers)
}

// Where the kernel has no more instances, that is logged once, and readers look once a second.
func TestLogWatchIsRefused(t *testing.T) {
	lines := 0
	l := newLogWatch(funcr.New(func(string, string) { lines++ }, funcr.Options{}))
	l.open = func() (*fswatch.Watcher, error) { return nil, os.NewSyscallError("inotify_init1", syscall.EMFILE) }
	path := filepath.Join(t.TempDir(), "0.log")
	for range 2 {
		written, stop := l.add(path)
		assert.Nil(t, written)
		stop()
	}
	assert.Equal(t, 1, lines)
	l.open = fswatch.Open
	written, stop := l.add(path)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	<-written
	stop()
	written, stop = l.add(filepath.Join(path, "missing", "0.log"))
	assert.Nil(t, written, "there is no such directory")
	stop()
	assert.Nil(t, l.watcher)
}
