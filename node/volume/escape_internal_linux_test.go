package volume

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
)

// outside is a directory of the host that a container must not reach.
func outside(t *testing.T) (dir string, untouched func()) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o700))
	file := filepath.Join(dir, "sub", "f")
	require.NoError(t, os.WriteFile(file, make([]byte, 8<<20), 0o600))
	return dir, func() {
		t.Helper()
		for _, path := range []string{dir, filepath.Join(dir, "sub"), file} {
			info, err := os.Stat(path)
			if assert.NoError(t, err) {
				assert.False(t, belongsTo(info, 4242), "%s was given away", path)
				assert.Zero(t, info.Mode().Perm()&0o077, "%s is open to others", path)
			}
		}
		entries, err := os.ReadDir(dir)
		assert.NoError(t, err)
		assert.Len(t, entries, 1, "something was made in %s", dir)
	}
}

// swap exchanges a directory of the volume with a link that leads out of it, again and
// again, until the test ends.
func swap(t *testing.T, volume, target string) (stop func()) {
	t.Helper()
	a, b := filepath.Join(volume, "sub"), filepath.Join(volume, "other")
	require.NoError(t, os.MkdirAll(filepath.Join(a, "deep"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(a, "deep", "f"), nil, 0o666))
	require.NoError(t, os.Symlink(target, b))
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}
	})
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}

// A link that takes the place of a directory while a volume is set up, measured or removed
// leads nowhere.
func TestSwappedDirectories(t *testing.T) {
	for name, attack := range map[string]func(t *testing.T, volume string){
		"sub-path": func(t *testing.T, volume string) {
			f, err := openInside(volume, "sub/deep/new", false, nil)
			if err != nil {
				return
			}
			defer func() { _ = f.Close() }()
			path, err := pathOf(f)
			require.NoError(t, err)
			assert.True(t, strings.HasPrefix(path, volume+"/"), path)
			_ = os.Remove(filepath.Join(volume, "sub/deep/new"))
		},
		"walked sub-path": func(t *testing.T, volume string) {
			root, err := os.Open(volume)
			require.NoError(t, err)
			defer func() { _ = root.Close() }()
			if f, err := walkBeneath(root, "sub/deep"); err == nil {
				path, err := pathOf(f)
				require.NoError(t, err)
				assert.True(t, strings.HasPrefix(path, volume+"/"), path)
				_ = f.Close()
			}
		},
		"measuring": func(t *testing.T, volume string) {
			used, err := diskUsage(t.Context(), volume)
			if err == nil {
				assert.Less(t, used, int64(1<<20))
			}
		},
		"fsGroup": func(t *testing.T, volume string) { _ = giveTree(t.Context(), volume, 4242, new(atomic.Int64)) },
	} {
		t.Run(name, func(t *testing.T) {
			volume := t.TempDir()
			target, untouched := outside(t)
			stop := swap(t, volume, target)
			defer stop()
			for until := time.Now().Add(100 * time.Millisecond); time.Now().Before(until) && !t.Failed(); {
				attack(t, volume)
			}
			stop()
			untouched()
		})
	}
	t.Run("removal", func(t *testing.T) {
		target, untouched := outside(t)
		for range 50 {
			volume := filepath.Join(testenv.MemoryDir(t), "v")
			require.NoError(t, os.MkdirAll(volume, 0o777))
			stop := swap(t, volume, target)
			_ = removeAll(t.Context(), volume) // the last round of the swap may be in its way
			stop()
			require.NoError(t, removeAll(t.Context(), volume))
		}
		untouched()
	})
}

// Pipes, sockets, devices and names of any bytes are measured and removed without being
// opened.
func TestSpecialFiles(t *testing.T) {
	volume := filepath.Join(t.TempDir(), "v")
	require.NoError(t, os.Mkdir(volume, 0o777))
	require.NoError(t, unix.Mkfifo(filepath.Join(volume, "pipe"), 0o666))
	require.NoError(t, unix.Mknod(filepath.Join(volume, "socket"), unix.S_IFSOCK|0o666, 0))
	if os.Getuid() == 0 {
		for name, dev := range map[string]int{"watchdog": int(unix.Mkdev(10, 130)), "tape": int(unix.Mkdev(9, 0)),
			"null": int(unix.Mkdev(1, 3))} {
			require.NoError(t, unix.Mknod(filepath.Join(volume, name), unix.S_IFCHR|0o666, dev))
		}
	}
	for _, name := range []string{strings.Repeat("n", 255), strings.Repeat("\xff", 255), "\n", "-rf", "...", " "} {
		require.NoError(t, os.Mkdir(filepath.Join(volume, name), 0o000))
	}
	require.NoError(t, os.Symlink("/", filepath.Join(volume, "root")))
	require.NoError(t, os.Symlink("self", filepath.Join(volume, "self")))
	if os.Getuid() == 0 { // the directories cannot be read otherwise
		used, err := diskUsage(t.Context(), volume)
		require.NoError(t, err)
		assert.Less(t, used, int64(1<<20))
		require.NoError(t, giveTree(t.Context(), volume, os.Getgid(), new(atomic.Int64)))
	}
	require.NoError(t, removeAll(t.Context(), volume))
	assert.NoDirExists(t, volume)
}

// 10^5 files, and directories beside them, are measured and removed, and a walk through them
// can be ended at any time.
func TestManyFiles(t *testing.T) {
	volume := filepath.Join(testenv.MemoryDir(t), "v")
	require.NoError(t, os.Mkdir(volume, 0o777))
	root, err := os.OpenRoot(volume)
	require.NoError(t, err)
	defer func() { _ = root.Close() }()
	for i := range 100_000 {
		name := strconv.Itoa(i)
		if i%100 == 0 {
			require.NoError(t, root.Mkdir(name, 0o777))
			continue
		}
		f, err := root.Create(name)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	_, err = diskUsage(t.Context(), volume)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = diskUsage(ctx, volume)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, removeAll(ctx, volume), context.Canceled)
	require.NoError(t, removeAll(t.Context(), volume))
	assert.NoDirExists(t, volume)
}

// What is mounted over a volume or in it is neither measured, nor given away, nor removed, also
// if it is on the same device.
func TestBindMountsInAVolume(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	target, untouched := outside(t)
	pod := t.TempDir()
	place := PlaceOf(pod, EmptyDir{}.Name(), "v")
	inside := filepath.Join(place.Dir, "a", "b")
	require.NoError(t, os.MkdirAll(inside, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(place.Dir, "file"), nil, 0o600))
	t.Cleanup(func() { assert.NoError(t, unmountBelow(pod)) })
	require.NoError(t, unix.Mount(target, inside, "", unix.MS_BIND, ""))
	require.NoError(t, unix.Mount(filepath.Join(target, "sub", "f"), filepath.Join(place.Dir, "file"), "", unix.MS_BIND,
		""))

	used, err := diskUsage(t.Context(), place.Dir)
	require.NoError(t, err)
	assert.Less(t, used, int64(9<<20), "the mounted file may count, the directory not")
	require.NoError(t, giveTree(t.Context(), filepath.Join(place.Dir, "a"), 4242, new(atomic.Int64)))
	untouched()
	require.ErrorIs(t, removeAll(t.Context(), place.Dir), unix.EBUSY)
	untouched()

	require.NoError(t, unix.Mount(target, place.Dir, "", unix.MS_BIND, "")) // over the volume itself
	require.NoError(t, removeMounted(t.Context(), pod))
	untouched()
	assert.NoDirExists(t, pod)
}
