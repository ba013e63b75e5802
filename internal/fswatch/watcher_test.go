package fswatch

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) *Watcher {
	w, err := Open()
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return w
}

// until receives changes until those of the path have the operation.
func until(t *testing.T, w *Watcher, path string, op Op) {
	t.Helper()
	for seen := Op(0); !seen.Has(op); {
		select {
		case changes := <-w.Changes():
			seen |= changes.Ops[path]
			require.NoError(t, changes.Lost)
		case <-time.After(time.Minute):
			t.Fatalf("no %v of %s", op, path)
		}
	}
}

func TestDirectory(t *testing.T) {
	dir, aside := filepath.Join(t.TempDir(), "dir"), filepath.Join(t.TempDir(), "aside")
	file := filepath.Join(dir, "file")
	w := open(t)
	assert.ErrorIs(t, w.Add(dir), os.ErrNotExist)
	w.Remove(dir) // of no effect
	for range 2 { // the second directory is another one
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, w.Add(dir))
		require.NoError(t, w.Add(dir))
		require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
		until(t, w, file, Create)
		require.NoError(t, os.Remove(file))
		until(t, w, file, Remove)
		require.NoError(t, os.RemoveAll(aside))
		require.NoError(t, os.Rename(dir, aside))
		until(t, w, dir, fsnotify.Rename)
	}
	w.Close()
	_, open := <-w.Changes()
	assert.False(t, open)
	assert.ErrorIs(t, w.Add(dir), ErrClosed)
	w.Close()
}

// A link that is switched from one directory to another is watched anew, as after each switch of a config map.
func TestLink(t *testing.T) {
	dir, w := t.TempDir(), open(t)
	link := filepath.Join(dir, "link")
	for _, version := range []string{"1", "2"} {
		target := filepath.Join(dir, version)
		require.NoError(t, os.Mkdir(target, 0o755))
		require.NoError(t, os.Symlink(target, link+".new"))
		require.NoError(t, os.Rename(link+".new", link))
		w.Remove(link)
		require.NoError(t, w.Add(link))
		require.NoError(t, os.WriteFile(filepath.Join(target, "file"), nil, 0o600))
		until(t, w, filepath.Join(link, "file"), Create)
	}
}

// A user that does not receive costs a bounded memory.
func TestManyChanges(t *testing.T) {
	var c Changes
	for i := range MaxPaths {
		c.add(strconv.Itoa(i), Create)
	}
	c.add("0", Write)
	require.NoError(t, c.Lost)
	c.add("one more", Create)
	assert.Len(t, c.Ops, MaxPaths)
	assert.Equal(t, Create|Write, c.Ops["0"])
	assert.Equal(t, errTooMany, c.Lost)
}

// A queue of the kernel that was full is reported.
func TestQueueOverflow(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Skip("no inotify here: ", err)
	}
	queue, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	if queue > 1<<18 {
		t.Skip("the queue of the kernel is too long to fill: ", queue)
	}
	kernel, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, kernel.Add(dir))
	for i := range queue + 10_000 { // the same event twice in a row is kept once
		path := filepath.Join(dir, strconv.Itoa(i%2))
		if i < 2 {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		}
		require.NoError(t, os.Chmod(path, 0o600))
	}
	w := newWatcher(kernel)
	defer w.Close()
	for {
		if changes := <-w.Changes(); changes.Lost != nil {
			assert.ErrorIs(t, changes.Lost, fsnotify.ErrEventOverflow)
			return
		}
	}
}

func TestNil(t *testing.T) {
	var w *Watcher
	assert.ErrorIs(t, w.Add(t.TempDir()), ErrClosed)
	assert.Nil(t, w.Changes())
	w.Remove("/")
	w.Close()
}

func TestRefused(t *testing.T) {
	assert.NoError(t, Refused(nil))
	assert.ErrorContains(t, Refused(os.NewSyscallError("inotify_init1", syscall.EMFILE)), "max_user_instances")
	assert.ErrorContains(t, Refused(syscall.ENOSPC), "max_user_watches")
	other := errors.New("other")
	assert.Equal(t, other, Refused(other))
}
